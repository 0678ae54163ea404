"""How each kind of fault is carried out on the cluster, and how its nodes become well again."""

import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from kit.cluster import unfenced
from kit.metadata import end_offset
from kit.soak.history import Recorder, What
from kit.soak.nodes import SoakCluster
from kit.soak.observer import Observer
from kit.soak.schedule import Fault, Kind
from kit.soak.trouble import Trouble
from kit.waiting import eventually

END_TIMEOUT_S = 40
RECOVERY_TIMEOUT_S = 240
"""A JVM on an overloaded machine takes a minute to start; only a longer start counts as hanging."""
VOTERS_TIMEOUT_S = 120
OTHERS_TIMEOUT_S = 30
STOPS_ITSELF_TIMEOUT_S = 15
ROLL_PATIENCE_S = 20
LOG_SHOWN = 1500
ENDS_MAX = 3
INJECTED = "INJECTED"
CHECKPOINT = ".checkpoint"
_FAILED = re.compile(r" ERROR +failed\n")
"""What a controller logs when it begins to end; the reason is its last line."""


class Breaker:
    """Carries out faults; several at the same time, each in a thread of its own."""

    def __init__(
        self, cluster: SoakCluster, observer: Observer, trouble: Trouble, recorder: Recorder
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._trouble = trouble
        self._recorder = recorder
        self._changing_voters = threading.Lock()
        self._voters = set(cluster.controllers)
        self._ended: Counter[int] = Counter()
        self._acts: Mapping[Kind, Callable[[Fault, tuple[int, ...]], str | None]] = {
            Kind.KILL: self._kill,
            Kind.KILL_TWO: self._kill,
            Kind.KILL_ALL: self._kill_all,
            Kind.HANDOVER: self._terminate,
            Kind.ROLL: self._roll,
            Kind.PAUSE: self._pause,
            Kind.PAUSE_TWO: self._pause,
            Kind.ISOLATE: partial(self._cut, hears=False, is_heard=False),
            Kind.DEAF: partial(self._cut, hears=False, is_heard=True),
            Kind.MUTE: partial(self._cut, hears=True, is_heard=False),
            Kind.SPLIT: self._split,
            Kind.LINK: self._cut_link,
            Kind.LOSS: self._lose_packets,
            Kind.DELAY: self._delay_packets,
            Kind.CLOCK: self._set_clock,
            Kind.FULL_DISK: self._fill_disk,
            Kind.SLOW_SYNC: self._slow_sync,
            Kind.FAILING_SYNC: self._fail_sync,
            Kind.LOST_DISK: self._lose_disk,
            Kind.FLIPPED_BIT: self._flip_bit,
            Kind.VOTER_CHANGE: self._change_voter,
            Kind.BROKER_KILL: self._kill,
            Kind.BROKER_PAUSE: self._pause,
            Kind.BROKER_ISOLATE: partial(self._cut, hears=False, is_heard=False),
        }

    def carry_out(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        """Break the nodes, repair them, and wait until they are well; then other faults may hit them."""
        options = {"lasts_s": fault.lasts_s, **fault.options}
        self._recorder.note(What.FAULT, number=fault.number, kind=fault.kind, nodes=nodes, **options)
        result: str | None = None
        try:
            try:
                result = self._acts[fault.kind](fault, nodes)
            finally:
                self._mend(nodes)
            self._await_well(nodes)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            self._broken("not well again", f"{fault.kind} of {nodes}: {error!r}"[:LOG_SHOWN])
        finally:
            self._trouble.release(fault, nodes)
            self._recorder.note(What.FAULT_ENDED, number=fault.number, kind=fault.kind, outcome=result)

    # Processes

    def _kill(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        for node_id in nodes:
            self._cluster.end(node_id, signal.SIGKILL, END_TIMEOUT_S)
        time.sleep(fault.lasts_s)
        self._cluster.start(*nodes)

    def _kill_all(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        for node_id in nodes:
            with suppress(ProcessLookupError):
                self._cluster.signal(node_id, signal.SIGKILL)
        self._kill(fault, nodes)

    def _terminate(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        (node_id,) = nodes
        self._leave(node_id)
        time.sleep(fault.lasts_s)
        self._cluster.start(node_id)

    def _roll(self, fault: Fault, _: tuple[int, ...]) -> str:
        restarted = []
        for node_id in fault.order:
            with self._trouble.acquire_controller(node_id, ROLL_PATIENCE_S) as is_held:
                if not is_held:
                    continue
                self._leave(node_id)
                time.sleep(fault.lasts_s)
                self._cluster.start(node_id)
                self._await_well([node_id])
                restarted.append(node_id)
        return f"restarted {len(restarted)} of {len(fault.order)}"

    def _leave(self, node_id: int) -> None:
        self._cluster.end(node_id, signal.SIGTERM, END_TIMEOUT_S)
        code = self._cluster.exit_code(node_id)
        if node_id in self._cluster.python_controllers and code != 0:
            self._broken(
                "did not leave in order", f"{node_id} ended with {code}: {self._last_lines(node_id)}"
            )

    def _pause(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        for node_id in nodes:
            self._cluster.signal(node_id, signal.SIGSTOP)
        time.sleep(fault.lasts_s)
        for node_id in nodes:
            self._cluster.signal(node_id, signal.SIGCONT)

    # The network

    def _cut(self, fault: Fault, nodes: tuple[int, ...], *, hears: bool, is_heard: bool) -> None:
        for node_id in nodes:
            self._cluster.network.cut(node_id, hears=hears, is_heard=is_heard)
        time.sleep(fault.lasts_s)

    def _split(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        others = [controller for controller in self._cluster.controllers if controller not in nodes]
        for node_id in nodes:
            self._cluster.network.cut(node_id, others, hears=False, is_heard=False)
        time.sleep(fault.lasts_s)

    def _cut_link(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        (node_id,) = nodes
        peer = next(node for node in fault.order if node != node_id)
        self._cluster.network.cut(node_id, [peer], hears=False, is_heard=True)
        time.sleep(fault.lasts_s)

    def _lose_packets(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        for node_id in nodes:
            self._cluster.network.lose(node_id, fault.options["share"])
        time.sleep(fault.lasts_s)

    def _delay_packets(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        for node_id in nodes:
            self._cluster.network.delay(node_id, fault.options["delay_ms"])
        time.sleep(fault.lasts_s)

    # Clocks and disks

    def _set_clock(self, fault: Fault, nodes: tuple[int, ...]) -> str:
        (node_id,) = nodes
        offset_s = int(fault.options["offset_s"])
        self._cluster.set_clock(node_id, offset_s)
        restarts = bool(fault.options["restarts"])
        if restarts:  # a process reads the wall clock when it starts
            self._cluster.end(node_id, signal.SIGKILL, END_TIMEOUT_S)
            self._cluster.start(node_id)
        time.sleep(fault.lasts_s)
        self._await_well(nodes)
        self._cluster.set_clock(node_id, 0)
        return f"{offset_s:+d} s{', restarted' if restarts else ''}"

    def _fill_disk(self, fault: Fault, nodes: tuple[int, ...]) -> str:
        (node_id,) = nodes
        reported_before = len(self._cluster.log_of(node_id))
        self._cluster.disks[node_id].fill()
        time.sleep(fault.lasts_s)
        self._cluster.disks[node_id].free()
        return self._start_if_ended(node_id, "No space left on device", reported_before)

    def _slow_sync(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        (node_id,) = nodes
        self._cluster.inject(node_id, f"delay_enter={round(fault.options['delay_ms'] * 1000)}")
        time.sleep(fault.lasts_s)

    def _fail_sync(self, fault: Fault, nodes: tuple[int, ...]) -> str:
        (node_id,) = nodes
        reported_before = len(self._cluster.log_of(node_id))
        self._cluster.inject(node_id, "error=EIO")
        deadline = time.monotonic() + max(fault.lasts_s, STOPS_ITSELF_TIMEOUT_S)
        while self._cluster.runs(node_id) and time.monotonic() < deadline:
            time.sleep(0.1)
        has_failed = INJECTED in self._cluster.injection_log(node_id).read_text(errors="replace")
        if has_failed and self._cluster.runs(node_id):
            self._broken("went on after a failed fsync", f"{node_id}")
        self._cluster.stop_injecting(node_id)
        return self._start_if_ended(node_id, "Input/output error", reported_before)

    def _start_if_ended(self, node_id: int, reason: str, reported_before: int) -> str:
        """Wait until a node whose disk failed follows again, or has ended with its message and was started again."""

        def has_ended_or_follows() -> bool:
            if not self._cluster.runs(node_id):
                return True
            is_ending = _FAILED.search(self._cluster.log_of(node_id)[reported_before:])
            return not is_ending and node_id in self._observer.caught_up()

        eventually(has_ended_or_follows, RECOVERY_TIMEOUT_S, f"{node_id} to end or to follow")
        if self._cluster.runs(node_id):
            return "went on"
        if reason not in self._cluster.log_of(node_id)[reported_before:]:
            self._broken(
                "ended without its message", f"{node_id}, not {reason!r}: {self._last_lines(node_id)}"
            )
        self._cluster.start(node_id)
        return "ended with its message"

    # Lost data

    def _lose_disk(self, fault: Fault, nodes: tuple[int, ...]) -> str:
        (node_id,) = nodes
        if not self._others_have_all(node_id):
            return "left alone: the others had not caught up"
        time.sleep(fault.lasts_s)
        self._replace_disk(node_id)
        return "replaced"

    def _others_have_all(self, node_id: int) -> bool:
        """Kill a controller, and wait until all others have what it has; otherwise start it again."""
        self._cluster.end(node_id, signal.SIGKILL, END_TIMEOUT_S)
        end = end_offset(self._cluster.metadata(node_id))
        others = set(self._cluster.controllers) - {node_id}

        def have_all() -> bool:
            quorum = self._observer.quorum()
            return (
                quorum is not None
                and quorum.leader_id != node_id
                and quorum.high_watermark >= end
                and self._observer.caught_up() >= others
            )

        try:
            return eventually(have_all, OTHERS_TIMEOUT_S, "the others to catch up")
        except AssertionError:
            self._cluster.start(node_id)
            return False

    def _replace_disk(self, node_id: int) -> None:
        """Remove a stopped controller from the voters, format its empty disk, start it and add it again."""
        lost = self._cluster.directory_id(node_id)
        self._cluster.empty_disk(node_id)
        self._observer.disks[node_id] += 1
        self._remove(node_id, lost)
        self._cluster.format(node_id)
        self._cluster.start(node_id)
        self._await_caught_up([node_id])
        self._add(node_id)

    def _flip_bit(self, fault: Fault, nodes: tuple[int, ...]) -> str:
        (node_id,) = nodes
        if not self._others_have_all(node_id):
            return "left alone: the others had not caught up"
        file, place, bit = self._choose_bit(node_id, fault.options)
        _flip(file, place, bit)
        self._cluster.start(node_id)

        def has_ended_or_caught_up() -> bool:
            return not self._cluster.runs(node_id) or node_id in self._observer.caught_up()

        eventually(has_ended_or_caught_up, RECOVERY_TIMEOUT_S, f"{node_id} to refuse or to recover")
        if self._cluster.runs(node_id):
            if file.suffix == CHECKPOINT and file.exists():
                _flip(file, place, bit)  # an older one, which it does not need; at the end all are compared
            return f"recovered from {file.suffix}"
        if file.name not in self._last_lines(node_id):
            self._broken("ended without its message", f"{node_id}, of {file}: {self._last_lines(node_id)}")
        self._replace_disk(node_id)
        return f"refused {file.suffix} and replaced"

    def _choose_bit(self, node_id: int, options: Mapping[str, float]) -> tuple[Path, int, int]:
        partition = self._cluster.metadata(node_id)
        files = sorted(path for path in partition.iterdir() if path.suffix in {".log", CHECKPOINT})
        files = [path for path in files if path.stat().st_size]
        file = files[int(options["file"] * len(files))]
        return file, int(options["place"] * file.stat().st_size), int(options["bit"])

    # Voters

    def _change_voter(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        (node_id,) = nodes
        self._remove(node_id, self._cluster.directory_id(node_id))
        time.sleep(fault.lasts_s)
        self._await_caught_up([node_id])
        self._add(node_id)

    def _remove(self, node_id: int, directory_id: str) -> None:
        self._ask_for_voters(
            node_id, is_voter=False, ask=lambda: self._cluster.try_to_remove(node_id, directory_id)
        )

    def _add(self, node_id: int) -> None:
        config = self._cluster.config_file(node_id)
        self._ask_for_voters(
            node_id,
            is_voter=True,
            ask=lambda: self._cluster.metadata_quorum("add-controller", config=config),
        )

    def _ask_for_voters(
        self, node_id: int, *, is_voter: bool, ask: Callable[[], subprocess.CompletedProcess[str]]
    ) -> None:
        """Ask until the change is made, as an operator would; other faults may last meanwhile."""
        with self._changing_voters:
            if is_voter:
                self._voters.add(node_id)
            else:
                self._voters.discard(node_id)
            said = ""
            deadline = time.monotonic() + VOTERS_TIMEOUT_S
            while self._observer.voters() != self._voters and time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    ran = ask()
                    said = ran.stdout + ran.stderr
                with suppress(AssertionError):
                    eventually(lambda: self._observer.voters() == self._voters, 3, "the new voters")
            seen = sorted(self._observer.voters())
            self._recorder.note(What.VOTERS, wanted=sorted(self._voters), seen=seen, said=said[-LOG_SHOWN:])

    # Being well

    def _mend(self, nodes: Iterable[int]) -> None:
        for node_id in nodes:
            self._cluster.stop_injecting(node_id)
            self._cluster.network.heal(node_id)
            if node_id in self._cluster.disks:
                self._cluster.disks[node_id].free()

    def _await_well(self, nodes: Iterable[int]) -> None:
        """Wait until nodes run and follow; one that ended by itself is a violation, and is started again."""
        for node_id in nodes:
            self.check_ended(node_id)
        brokers = [node for node in nodes if node in self._cluster.brokers]
        for broker in brokers:
            eventually(
                partial(self._is_in_service, broker), RECOVERY_TIMEOUT_S, f"broker {broker} in service"
            )
        self._await_caught_up([node for node in nodes if node not in brokers])

    def _is_in_service(self, broker: int) -> bool:
        seen = self._cluster.describe_brokers(broker)
        return seen is not None and broker in unfenced(seen)

    def check_ended(self, node_id: int) -> None:
        """Start a node that ended though no fault hit it, and report that. After some times it is left alone."""
        if self._cluster.runs(node_id) or self._ended[node_id] > ENDS_MAX:
            return
        self._ended[node_id] += 1
        code = self._cluster.exit_code(node_id)
        self._broken("ended by itself", f"{node_id} with {code}: {self._last_lines(node_id)}")
        self._cluster.start(node_id)

    def _await_caught_up(self, nodes: Iterable[int]) -> None:
        wanted = frozenset(nodes)
        eventually(
            lambda: self._observer.caught_up() >= wanted,
            RECOVERY_TIMEOUT_S,
            f"{sorted(wanted)} to catch up",
            lambda: f"{self._observer.quorum()}; {[self._last_lines(node) for node in wanted]}",
        )

    def _broken(self, rule: str, text: str) -> None:
        self._recorder.note(What.BROKEN, rule=rule, text=text)

    def _last_lines(self, node_id: int) -> str:
        return self._cluster.log_of(node_id)[-LOG_SHOWN:]


def _flip(file: Path, place: int, bit: int) -> None:
    with file.open("r+b") as content:
        content.seek(place)
        (before,) = content.read(1)
        content.seek(place)
        content.write(bytes([before ^ 1 << bit]))
