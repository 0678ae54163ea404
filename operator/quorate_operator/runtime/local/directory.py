"""The directory of a played cluster: its layout, its lock, and whether it may be used.

play.json         the identity of the cluster: its id, and each node's directory id and ports
manifest.yaml     what is played
lock              held by the supervisor
control.sock      the supervisor listens here
supervisor.log    what the supervisor did
bin/              Kafka's tools, set up for this cluster
secrets/          the manifest's Secrets, a file for each key
clients/          client properties for each user, and controllers.properties: where listeners are secured
controller-3000/  a node: server.properties, format.log, node.log, data/
broker-0/         the same; with several volumes, also data-1/, data-2/

Its content decides which files are written and which addresses are opened, so no other user may own or write any of
it. It does not decide which program runs: Java and Kafka's jars are searched at each start.
"""

import fcntl
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quorate_protocol.kafka.metadata_log import META_PROPERTIES
from quorate_protocol.properties import parse_properties

from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.runtime.local.errors import AlreadyRunningError, PlayError

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


_DATA = re.compile("data(?:-([1-9][0-9]?))?")
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_MAY_ENTER: Final = stat.S_IXGRP | stat.S_IXOTH


def _volume_id(name: str) -> int | None:
    """Return the volume of a log directory by its name; None for other names."""
    matched = _DATA.fullmatch(name)
    return None if matched is None else int(matched[1] or METADATA_VOLUME)


class PlayDirectory:
    """The paths of a played cluster, and its lock while it is held."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: int | None = None

    @property
    def identity_file(self) -> Path:
        return self.path / "play.json"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.yaml"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    @property
    def tools(self) -> Path:
        return self.path / "bin"

    @property
    def secrets(self) -> Path:
        """The Secrets of the manifest: a directory for each, with a file for each key."""
        return self.path / "secrets"

    @property
    def authority(self) -> Path:
        """The cluster's own authority with its key, if a listener needs it; no node reads it."""
        return self.path / "authority.json"

    @property
    def clients(self) -> Path:
        """Configurations of clients, where listeners are secured: a file for each user."""
        return self.path / "clients"

    @property
    def controllers_client(self) -> Path:
        """The configuration of a client of the controllers, where their listener is secured."""
        return self.path / "controllers.properties"

    def node(self, label: str) -> Path:
        return self.path / label

    def node_log(self, label: str) -> Path:
        return self.node(label) / "node.log"

    def ship_log(self, label: str) -> Path:
        """The output of the process that ships a controller's log."""
        return self.node(label) / "ship.log"

    @property
    def history(self) -> Path:
        """Where controllers' logs are shipped to, for `quorate lake ingest`."""
        return self.path / "history"

    def node_data(self, label: str, volume_id: int = METADATA_VOLUME) -> Path:
        """Kafka's log directory of the node in one of its volumes."""
        return self.node(label) / ("data" if volume_id == METADATA_VOLUME else f"data-{volume_id}")

    def volumes(self, label: str) -> dict[int, Path]:
        """The log directories of a node by volume id. Volume 0 is missing while nothing is in it."""
        node = self.node(label)
        found = [path for path in node.iterdir() if path.is_dir()] if node.is_dir() else []
        by_id = {_volume_id(path.name): path for path in found}
        return {
            volume_id: path
            for volume_id, path in by_id.items()
            if volume_id is not None and (volume_id != METADATA_VOLUME or any(path.iterdir()))
        }

    @property
    def exists(self) -> bool:
        """Whether a cluster was played here."""
        return self.identity_file.is_file()

    @property
    def lock_descriptor(self) -> int:
        """The descriptor that holds the lock, for a process that takes it over."""
        assert self._lock is not None
        return self._lock

    def lock(self) -> None:
        """Create the directory if it does not exist, and locks it.

        Raises AlreadyRunningError, or PlayError if it can't be written, can't be trusted, or holds something else;
        nothing was changed then.
        """
        if "," in str(self.path):
            raise PlayError(
                f"{self.path}: Kafka can't keep data under a path with a comma; choose another --dir"
            )
        self.check()
        check_content(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
            foreign = not self.exists and any(entry.name != "lock" for entry in self.path.iterdir())
            if foreign:
                raise PlayError(
                    f"{self.path} is not empty and holds no played cluster (no play.json); "
                    "choose another --dir"
                )
            self._lock = os.open(
                self.path / "lock",
                os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
                PRIVATE_FILE,
            )
        except OSError as error:
            raise PlayError(
                f"{self.path} can't be written ({error.strerror}); choose another directory with --dir"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise AlreadyRunningError(
                f"the cluster in {self.path} runs already; `quorate play stop --dir {self.path}` stops it"
            ) from None

    def check(self) -> None:
        """Refuse a directory that another user owns or may write. Raises PlayError."""
        check_directory(self.path)

    def adopt(self, lock_descriptor: int) -> None:
        """Hold the lock that the parent process took."""
        self._lock = lock_descriptor

    def release(self) -> None:
        """Release the lock. A supervisor keeps it until its process ends."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def held(self) -> bool:
        """Whether some process runs the cluster of this directory."""
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(lock)
        return False

    def make(self, path: Path) -> None:
        """Create a directory of the cluster, and those above it, for the owner alone. Raises OSError."""
        for parent in reversed(path.relative_to(self.path).parents):
            (self.path / parent).mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)

    def write(self, path: Path, content: str, mode: int = PRIVATE_FILE) -> None:
        """Write a file whole or not at all. Raises PlayError.

        By default only the owner can read it: it may hold passwords.
        """
        scratch = path.with_name(f"{path.name}.tmp")
        try:
            self.make(path.parent)
            scratch.unlink(missing_ok=True)
            with open(scratch, "x", opener=lambda name, flags: os.open(name, flags, mode)) as file:
                file.write(content)
            scratch.replace(path)
        except OSError as error:
            raise PlayError(f"{path} can't be written: {error.strerror}") from error

    def directory_id_of(self, label: str, cluster_id: str) -> str | None:
        """Return the directory id of a formatted node, None if it is not formatted.

        Raises PlayError if it was formatted for another cluster.
        """
        file = self.node_data(label) / META_PROPERTIES
        try:
            entries = parse_properties(file.read_text())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PlayError(f"{file} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise PlayError(f"{file} can't be read: {error}") from error
        found = entries.get("cluster.id", "")
        if found != cluster_id:
            raise PlayError(
                f"{file.parent} belongs to cluster {found or 'without an id'}, not to {cluster_id}; "
                "nothing was changed. Play in another --dir, or move that directory away"
            )
        return entries.get("directory.id") or None


class UntrustedError(PlayError):
    """Another user could have changed the directory."""


def check_directory(path: Path) -> None:
    """Refuse a directory that another user owns or may write; it need not exist. Raises PlayError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PlayError(f"{path} can't be read: {error.strerror}") from error
    _check(path, found, may_be_written=False)


def check_content(path: Path) -> None:
    """Refuse a directory with a file that another user owns or may write, or with a symbolic link.

    A link would lead writes of the cluster, and of Kafka, to another file. Raises PlayError.
    """
    check_directory(path)
    try:
        is_closed = not path.stat().st_mode & _OTHERS_MAY_ENTER
        for entry in _entries(path):
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise UntrustedError(
                    f"{entry.path} is a symbolic link, which `quorate play` never makes; remove it, or choose "
                    "another directory with --dir"
                )
            _check(Path(entry.path), found, may_be_written=is_closed)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PlayError(f"{error.filename} can't be read: {error.strerror}") from error


def check_peer(connected: socket.socket, path: Path) -> None:
    """Refuse the other end of a Unix socket at `path` if another user runs it. Raises PlayError."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    if uid not in (os.geteuid(), 0):
        raise UntrustedError(
            f"{path}: the other end runs as uid {uid}, and this process as uid {os.geteuid()}"
        )


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as found:
        for entry in found:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(Path(entry.path))


def _check(path: Path, found: os.stat_result, *, may_be_written: bool) -> None:
    facts = f"{path} belongs to uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}"
    if found.st_uid != os.geteuid():
        raise UntrustedError(
            f"{facts}, and this process runs as uid {os.geteuid()}: a cluster is played only from a directory of the "
            f"same user, because what is in it decides which files are written. Run as that user, choose another "
            f"directory with --dir, or take it over with `chown -R` if you trust what is in it"
        )
    if found.st_mode & _OTHERS_MAY_WRITE and not may_be_written:
        raise UntrustedError(
            f"{facts}: other users may write it, so what is in it can't be trusted. If you trust it, "
            f"`chmod -R go-w {path}`; otherwise choose another directory with --dir"
        )
