"""One node without a cluster, of stock Kafka or ours: its file, its commands, its process."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kit.cluster import free_ports
from kit.java.class_archive import JVM, archive_options
from quorate_operator.runtime.local.stock_kafka import Kafka

NODE_ID = 3000


def java_command(kafka: Kafka, main_class: str, *arguments: object) -> list[str]:
    """A small JVM that starts fast."""
    options = (*JVM, *archive_options(kafka.libs_of(main_class)), "-Xmx200m")
    return kafka.command(main_class, *map(str, arguments), jvm=options)


def quorate_command(*arguments: object) -> list[str]:
    """The `quorate` beside this Python, which is the one under test."""
    return [str(Path(sys.executable).parent / "quorate"), *map(str, arguments)]


def free_address() -> str:
    """An address of this machine where no server listens."""
    return f"127.0.0.1:{free_ports(1)}"


def write_config(
    directory: Path,
    *lines: str,
    roles: str = "controller",
    data: str = "data",
    address: str | None = None,
    node_id: int = NODE_ID,
) -> Path:
    """A node's file, which logs to `directory/data` and listens at `address`, for which ADDRESS in `lines` stands."""
    at = address or free_address()
    path = directory / f"{data}.properties"
    content = [
        f"process.roles={roles}",
        f"node.id={node_id}",
        "controller.listener.names=CONTROLLER",
        f"listeners={'PLAINTEXT' if roles == 'broker' else 'CONTROLLER'}://{at}",
        f"log.dirs={directory / data}",
        *(line.replace("ADDRESS", at) for line in lines),
    ]
    path.write_text("\n".join(content) + "\n")
    return path


@contextmanager
def running(command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes to `output` and is killed at the end."""
    with (
        output.open("wb") as stream,
        subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            process.kill()
