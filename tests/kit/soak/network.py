"""A network of namespaces: one for each node, joined by a bridge, with faults between them."""

import os
import re
import secrets
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

COMMAND_TIMEOUT_S = 20
SUBNETS = range(64, 128)
"""Third number of the addresses 10.213.n.0/24, which a run chooses one of."""
HOST_PLACE = 254
_LOCAL_ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")
NAME_PREFIX = "qsoak"


def run(*command: str) -> str:
    """What a command printed; fails with its complaint if it fails."""
    ran = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, f"{' '.join(command)} ended with {ran.returncode}: {ran.stderr or ran.stdout}"
    return ran.stdout


class Network:
    """Namespaces of nodes, reachable from this machine. Close it: it removes what it made, and nothing else."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        """Make a namespace for each node; `ports` has the port of each, by node id."""
        self.tag: Final = f"{NAME_PREFIX}{secrets.token_hex(2)}"
        """The names of the bridge, the links and the namespaces begin with it."""
        self._places = {node_id: place for place, node_id in enumerate(ports, start=1)}
        self._nodes = {port: node_id for node_id, port in ports.items()}
        self._prefix = ""
        self.has_netem = False

    def __enter__(self) -> Self:
        try:
            self._make_bridge()
            for node_id in self._places:
                self._make_namespace(node_id)
            self.has_netem = self._try_netem()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespaces, with the links in them, and the bridge."""
        for node_id in self._places:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                run("ip", "netns", "delete", self.namespace(node_id))
        with suppress(AssertionError, subprocess.TimeoutExpired):
            run("ip", "link", "delete", self.tag)

    # Names and addresses

    def namespace(self, node_id: int) -> str:
        """The name of a node's namespace."""
        return f"{self.tag}-{self._places[node_id]}"

    def host(self, node_id: int) -> str:
        """The address of a node."""
        return f"{self._prefix}.{self._places[node_id]}"

    def enter(self, node_id: int) -> tuple[str, ...]:
        """What a command has to begin with to run in a node's namespace."""
        return ("nsenter", f"--net=/run/netns/{self.namespace(node_id)}", "--")

    def translate(self, text: str) -> str:
        """A text with the nodes' addresses in place of those on the loopback interface, by their ports."""
        return _LOCAL_ADDRESS.sub(self._translated, text)

    def _translated(self, found: re.Match[str]) -> str:
        node_id = self._nodes.get(int(found[1]))
        return found[0] if node_id is None else f"{self.host(node_id)}:{found[1]}"

    # Faults

    def cut(self, node_id: int, peers: Iterable[int] | None = None, *, hears: bool, is_heard: bool) -> None:
        """Drop what a node receives unless it `hears`, and what it sends unless it `is_heard`.

        `peers`: from and to these; without, from and to everybody.
        """
        everybody: list[tuple[str, ...]] = [()]
        for chain, option, passes in (("INPUT", "-s", hears), ("OUTPUT", "-d", is_heard)):
            if passes:
                continue
            whom = everybody if peers is None else [(option, self.host(peer)) for peer in peers]
            for selection in whom:
                self._iptables(
                    node_id, "-A", chain, *selection, "!", self._not_loopback(chain), "lo", "-j", "DROP"
                )

    def lose(self, node_id: int, share: float) -> None:
        """Drop this share of the packets that a node receives, by chance."""
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}")
        self._iptables(node_id, "-A", "INPUT", "!", "-i", "lo", *chance, "-j", "DROP")

    def delay(self, node_id: int, delay_ms: float) -> None:
        """Delay what a node sends. Without netem the link is slow, so that what queues up is delayed."""
        discipline: tuple[str, ...]
        if self.has_netem:
            discipline = ("netem", "delay", f"{delay_ms:.0f}ms", f"{delay_ms / 3:.0f}ms")
        else:
            discipline = ("tbf", "rate", "400kbit", "burst", "4kb", "latency", f"{delay_ms:.0f}ms")
        self._tc(node_id, "replace", *discipline)

    def heal(self, node_id: int) -> None:
        """Remove all faults of a node's network."""
        for chain in ("INPUT", "OUTPUT"):
            self._iptables(node_id, "-F", chain)
        with suppress(AssertionError):  # nothing to remove
            self._tc(node_id, "delete")

    @staticmethod
    def _not_loopback(chain: str) -> str:
        return "-i" if chain == "INPUT" else "-o"

    def _iptables(self, node_id: int, *arguments: str) -> None:
        run(*self.enter(node_id), "iptables", "-w", "10", *arguments)

    def _tc(self, node_id: int, action: str, *discipline: str) -> None:
        run(*self.enter(node_id), "tc", "qdisc", action, "dev", "eth0", "root", *discipline)

    # Making it

    def _make_bridge(self) -> None:
        taken = run("ip", "-4", "address")
        free = [number for number in SUBNETS if f"10.213.{number}." not in taken]
        assert free, (
            "all networks 10.213.64.0/24 to 10.213.127.0/24 are taken: remove the bridges of former runs"
        )
        self._prefix = f"10.213.{free[os.getpid() % len(free)]}"
        run("ip", "link", "add", self.tag, "type", "bridge")
        run("ip", "address", "add", f"{self._prefix}.{HOST_PLACE}/24", "dev", self.tag)
        run("ip", "link", "set", self.tag, "up")

    def _make_namespace(self, node_id: int) -> None:
        name, outside = self.namespace(node_id), f"{self.tag}-{self._places[node_id]}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", outside, "master", self.tag, "up")
        run("ip", "-n", name, "address", "add", f"{self.host(node_id)}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "route", "add", "default", "via", f"{self._prefix}.{HOST_PLACE}")

    def _try_netem(self) -> bool:
        node_id = next(iter(self._places))
        try:
            self._tc(node_id, "replace", "netem", "delay", "1ms")
            self._tc(node_id, "delete")
        except AssertionError:
            return False
        return True


class SmallDisk:
    """A file system of its own at a path, in memory. Close it."""

    def __init__(self, path: Path, size_mb: int) -> None:
        self.path = path
        self._filler = path / "filler"
        path.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=700", NAME_PREFIX, str(path))

    def close(self) -> None:
        """Unmount it, even if a process that ends still has a file open."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            run("umount", "--lazy", str(self.path))

    def fill(self) -> None:
        """Leave no byte free."""
        block = bytes(64 * 1024)
        with self._filler.open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(block)

    def free(self) -> None:
        """Give back what was filled."""
        self._filler.unlink(missing_ok=True)
