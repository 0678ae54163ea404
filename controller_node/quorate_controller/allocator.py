"""The settings of the C library's allocator: memory that is freed goes back to the system."""

from __future__ import annotations

import ctypes
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Names and values of malloc.h of the GNU C library."""
MAPPED_BYTES_MIN: Final = 128 * 1024
"""Blocks of this size and more are mapped one by one, and unmapped when they are freed.

It is glibc's initial value. Without a setting, glibc raises it to the size of each block that is freed, up to 32 MiB.
Afterwards the buffers of connections, 256 KiB each with TLS, are cut from the heap, which shrinks only at its end.
"""
TRIMMED_BYTES_MIN: Final = 1024 * 1024
"""The free memory at the end of the heap that is given back."""


def return_freed_memory() -> bool:
    """Let the allocator give freed memory back to the system. Returns whether the C library has such settings."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl's allocator gives it back anyway
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) and mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES_MIN))
