"""Temporary files of a test run are below pytest's own directory, which pytest removes.

That includes what killed processes leave. Processes that tests start find the directory in TMPDIR. JVMs don't look
there: their options have to name it.
"""

import tempfile
from collections.abc import Iterator

import pytest

SOCKET_PATH_LENGTH_MAX = 107
SOCKET_NAME = "/org.chromium.Chromium.XXXXXX/SingletonSocket"
"""The longest name of a Unix socket in a temporary directory."""


@pytest.fixture(scope="session", autouse=True)
def temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files of this process and its children are below pytest's directory, if paths of sockets allow it."""
    directory = tmp_path_factory.getbasetemp() / "tmp"
    with pytest.MonkeyPatch.context() as patched:
        if len(f"{directory}{SOCKET_NAME}") <= SOCKET_PATH_LENGTH_MAX:
            directory.mkdir()
            patched.setenv("TMPDIR", str(directory))
            patched.setattr(tempfile, "tempdir", str(directory))
        yield


def jvm_temporary() -> str:
    """The option of a JVM for its temporary files."""
    return f"-Djava.io.tmpdir={tempfile.gettempdir()}"
