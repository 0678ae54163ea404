"""CRC-32C, and what its import costs."""

import subprocess
import sys

import crc32c as package
from quorate_protocol.records.checksum import crc32c


def test_the_checksum_is_that_of_the_package() -> None:
    assert crc32c(b"123456789") == 0xE306_9283 == package.crc32c(b"123456789")
    assert crc32c(memoryview(b"56789"), crc32c(bytearray(b"1234"))) == 0xE306_9283


def test_the_import_of_a_controller_leaves_out_what_it_does_not_call() -> None:
    unneeded = ("argparse", "email", "importlib.metadata", "importlib.resources")
    code = (
        "import sys, quorate_controller.commands, quorate_controller.process\n"
        f"print([name for name in {unneeded!r} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
