"""Ships the files that `decision` selects, in pieces, so that it can stop at any time, once or in an interval.

The directory is read in an interval: a log may be on a file system without change notifications, and closed segments
and checkpoints appear once in minutes.
"""

import asyncio
import errno
import logging
import os
import secrets
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

from quorate_protocol.kafka.metadata_log import META_PROPERTIES, METADATA_DIRECTORY
from quorate_protocol.plain_data import dataclass

from quorate_controller.shipping.decision import FileFacts, Shipment, Verdict, plan_shipments, verdict_on
from quorate_controller.storage.batch_spans import read_spans
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.meta_properties import MetaProperties, read_meta_properties
from quorate_controller.storage.os_filesystem import OsFileSystem

CHUNK_BYTES = 1024 * 1024
SUPERSEDED = "superseded"
LEFT_OVER_S_MIN = 24 * 3600
"""A temporary file that is older was left by a process that died."""
_PART = ".part"

log = logging.getLogger(__name__)


class ShipError(Exception):
    """A file cannot be shipped. The message is one line."""


class NotFormattedError(ShipError):
    """The log directory has no meta.properties or no metadata log: its controller has not been started yet."""


class StoppedError(Exception):
    """The process has to end. Incomplete copies were removed."""


class _SourceError(ShipError):
    """One file cannot be read; the others can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The result of one pass over the source. `problems` has a line for each file that could not be read."""

    properties: MetaProperties
    target: Path
    shipped: tuple[FileFacts, ...]
    problems: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Shipper:
    """Ships from `log_dir`, the directory with meta.properties, to below `history`."""

    log_dir: Path
    history: Path
    include_active: bool = False
    is_stopping: Callable[[], bool] = lambda: False
    _settled: dict[str, FileFacts] = field(default_factory=dict)

    def ship(self) -> Round:
        """Ship everything that is due.

        Raises:
            ShipError: a file cannot be written, or the source is not a log directory.
            NotFormattedError: there is no metadata log yet.
            StoppedError: a stop was requested.
        """
        properties = self._properties()
        source = self.log_dir / METADATA_DIRECTORY
        home = self.history / properties.cluster_id / str(properties.node_id)
        target = home / METADATA_DIRECTORY
        there = _listed(source)
        if there is None:
            raise NotFormattedError(f"{source}: there is no metadata log yet")
        with _writing(target):
            target.mkdir(parents=True, exist_ok=True)
        self._settled = {name: facts for name, facts in self._settled.items() if facts in there}
        self._ship_properties(home)
        planned = plan_shipments(
            there, _listed(target) or (), include_active=self.include_active, settled=self._settled
        )
        shipped, problems = [], []
        for shipment in planned:
            try:
                if self._ship(shipment, source, target):
                    shipped.append(shipment.file)
            except _SourceError as error:
                problems.append(str(error))
        _remove_left_overs(target)
        return Round(properties=properties, target=home, shipped=tuple(shipped), problems=tuple(problems))

    def _properties(self) -> MetaProperties:
        properties = read_meta_properties(OsFileSystem(), self.log_dir)
        if properties is None:
            raise NotFormattedError(
                f"{self.log_dir}: has no {META_PROPERTIES}; it is not a formatted log directory of a controller"
            )
        if "/" in properties.cluster_id or properties.cluster_id in ("", ".", ".."):
            path = self.log_dir / META_PROPERTIES
            raise ShipError(f"{path}: cluster.id: {properties.cluster_id!r}: is not a valid directory name")
        return properties

    def _ship_properties(self, home: Path) -> None:
        """A replaced disk has another directory.id: the newest one is reported."""
        path = self.log_dir / META_PROPERTIES
        with _reading(path), _opened(path) as source:
            content, mode = source.read(), _mode_of(source)
        shipped = home / META_PROPERTIES
        with _writing(shipped):
            if not shipped.exists() or shipped.read_bytes() != content:
                with _temporary(shipped, mode) as (file, temporary):
                    file.write(content)
                    _put_in_place(file, temporary, shipped)

    def _ship(self, shipment: Shipment, source: Path, target: Path) -> bool:
        """Copy a file. Returns False if the copy is complete already, or the file is deleted or changes meanwhile."""
        path, place = source / shipment.file.name, target / shipment.file.name
        try:
            opened = _opened(path)
        except FileNotFoundError:
            return False  # deleted by the controller
        except OSError as error:
            raise _SourceError(f"{path}: cannot open: {error.strerror or error}") from error
        with opened as file:
            verdict = Verdict.EXTEND
            if shipment.is_shipped:
                verdict = self._compare(file, path, place, shipment.file.size_bytes)
            if verdict is not Verdict.KEEP and not self._copy(file, shipment, path, place, verdict):
                return False
        self._settled[shipment.file.name] = shipment.file
        return verdict is not Verdict.KEEP

    def _compare(self, file: BinaryIO, path: Path, place: Path, source_bytes: int) -> Verdict:
        common = 0
        with _writing(place), _opened(place) as shipped:
            shipped_bytes = os.fstat(shipped.fileno()).st_size
            while common < min(source_bytes, shipped_bytes):
                self._check_stopping()
                with _reading(path):
                    chunk = file.read(min(CHUNK_BYTES, source_bytes - common))
                other = shipped.read(len(chunk))
                if not chunk or chunk[: len(other)] != other or len(other) < len(chunk):
                    pairs = enumerate(zip(chunk, other, strict=False))
                    common += next((at for at, (a, b) in pairs if a != b), min(len(chunk), len(other)))
                    break
                common += len(chunk)
        return verdict_on(common_bytes=common, source_bytes=source_bytes, shipped_bytes=shipped_bytes)

    def _copy(self, file: BinaryIO, shipment: Shipment, path: Path, place: Path, verdict: Verdict) -> bool:
        """Copy a file. Returns False if it changed meanwhile: the next round retries."""
        facts = shipment.file
        with _writing(place), _temporary(place, _mode_of(file)) as (copy, temporary):
            file.seek(0)
            left = facts.size_bytes
            while left:
                self._check_stopping()
                with _reading(path):
                    data = file.read(min(CHUNK_BYTES, left))
                if not data:
                    break
                copy.write(data)
                left -= len(data)
            copy.flush()
            if shipment.is_active:
                end = _whole_batches_end(temporary)
                if not end:
                    return False
                copy.truncate(end)
            elif left or _facts_of(facts.name, os.fstat(file.fileno())) != facts:
                return False
            with suppress(OSError):  # some file systems can't; their files are compared instead
                os.utime(copy.fileno(), ns=(facts.modified_ns, facts.modified_ns))
            if verdict is Verdict.SUPERSEDE:
                _put_aside(place)
            _put_in_place(copy, temporary, place)
        log.info("shipped", extra={"facts": {"file": str(place), "size_bytes": place.stat().st_size}})
        return True

    def _check_stopping(self) -> None:
        if self.is_stopping():
            raise StoppedError


def _listed(directory: Path) -> list[FileFacts] | None:
    """Return the files of a directory, None without the directory. Skips files that are deleted meanwhile."""
    found = []
    with _reading(directory):
        try:
            entries = list(directory.iterdir())
        except FileNotFoundError:
            return None
        for entry in entries:
            with suppress(FileNotFoundError):  # the controller has deleted it meanwhile
                found.append(_facts_of(entry.name, entry.lstat()))
    return found


def _opened(path: Path) -> BinaryIO:
    """Open a regular file to read it. Raises OSError, also for a link, which would lead to any file."""
    # Without O_NONBLOCK, opening a pipe would block until it has a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def _mode_of(file: BinaryIO) -> int:
    """The permissions of a file, for its copy: it has the same secrets."""
    return os.fstat(file.fileno()).st_mode & 0o777


def _facts_of(name: str, status: os.stat_result) -> FileFacts:
    return FileFacts(name=name, size_bytes=status.st_size, modified_ns=status.st_mtime_ns)


def _whole_batches_end(path: Path) -> int:
    """The end of the last good batch in a segment's copy, as a position in bytes."""
    file = OsFileSystem().open_file(path, read_only=True)
    try:
        end = 0
        for span in read_spans(file, 0, file.size_bytes, check_crc=True):
            end = span.position + span.size_bytes
        return end
    finally:
        file.close()


@contextmanager
def _temporary(place: Path, mode: int) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file with this mode beside `place`, removed at the end unless it was put in place."""
    path = place.with_name(f"{place.name}.{secrets.token_hex(4)}{_PART}")
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode & 0o600)) as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def _put_in_place(file: BinaryIO, temporary: Path, place: Path) -> None:
    """Make it durable, give it its name, and make that durable."""
    file.flush()
    os.fsync(file.fileno())
    temporary.replace(place)
    _sync_directory(place.parent)


def _put_aside(place: Path) -> None:
    """Rename a replaced file: it remains for the administrator, but readers of the log ignore it."""
    aside = place.parent.parent / SUPERSEDED
    aside.mkdir(exist_ok=True)
    kept = aside / f"{place.name}.{place.stat().st_mtime_ns}"
    place.replace(kept)
    _sync_directory(aside)
    log.warning("shipped_file_superseded", extra={"facts": {"file": str(place), "kept_as": str(kept)}})


def _remove_left_overs(target: Path) -> None:
    """Temporary files of processes that died."""
    with _writing(target):
        for path in target.glob(f"*{_PART}"):
            with suppress(FileNotFoundError):  # another process has removed or renamed it
                if time.time() - path.stat().st_mtime > LEFT_OVER_S_MIN:
                    path.unlink()


def _sync_directory(directory: Path) -> None:
    OsFileSystem().sync_directory(directory)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _SourceError(f"{path}: cannot read: {error.strerror or error}") from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ShipError(f"{path}: cannot ship: {error.strerror or error}") from error


def follow(log_dir: Path, history: Path, *, interval_s: float, include_active: bool) -> None:
    """Ship until SIGTERM or SIGINT. Errors do not end it: a full disk may have room again."""
    asyncio.run(_follow(log_dir, history, interval_s=interval_s, include_active=include_active))


async def _follow(log_dir: Path, history: Path, *, interval_s: float, include_active: bool) -> None:
    ended, is_stopping = asyncio.Event(), threading.Event()

    def stop() -> None:
        is_stopping.set()
        ended.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    shipper = Shipper(
        log_dir=log_dir, history=history, include_active=include_active, is_stopping=is_stopping.is_set
    )
    log.info("following", extra={"facts": {"log_dir": str(log_dir), "history": str(history)}})
    while not ended.is_set():
        try:
            done = await asyncio.to_thread(shipper.ship)
            for problem in done.problems:
                log.error("not_shipped", extra={"facts": {"reason": problem}})
        except NotFormattedError as error:
            log.info("waiting_for_a_log", extra={"facts": {"reason": str(error)}})
        except (ShipError, StorageError) as error:
            log.error("not_shipped", extra={"facts": {"reason": str(error)}})  # noqa: TRY400 - no traceback
        except StoppedError:
            break
        try:
            async with asyncio.timeout(interval_s):
                await ended.wait()
        except TimeoutError:
            continue
    log.info("stopped")
