"""Freed memory goes back to the system."""

import platform
import subprocess
import sys
import textwrap

import pytest

BUFFERS = 400
PROGRAM = textwrap.dedent(
    f"""
    import ctypes
    import resource
    from quorate_controller.allocator import return_freed_memory

    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

    def resident_bytes():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def filled(size_bytes):
        block = libc.malloc(size_bytes)
        libc.memset(block, 1, size_bytes)
        return block

    {{setting}}
    libc.free(filled(16 * 1024 * 1024))  # as a large request that was handled
    before = resident_bytes()
    buffers, kept = [], []
    for _ in range({BUFFERS}):
        buffers.append(filled(256 * 1024))
        kept.append(filled(1024))  # as what lives longer than a connection
    for buffer in buffers:
        libc.free(buffer)
    print((resident_bytes() - before) // 1024)
    """
)


def kept_kib(setting: str) -> int:
    """What a process keeps of 100 MiB of buffers that it has freed, in KiB."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setting=setting)], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(ended.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_buffers_of_ended_connections_go_back_to_the_system() -> None:
    assert kept_kib("pass") > 90_000, "glibc by itself keeps them"
    assert kept_kib("assert return_freed_memory()") < 5_000
