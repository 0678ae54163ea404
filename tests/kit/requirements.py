"""What a test needs of the machine: a test is skipped without it, unless the run insists."""

import os
from typing import NoReturn

import pytest


def missing(requirement: str, reason: str) -> NoReturn:
    """Skip the test; fail it when QUORATE_REQUIRE, a comma-separated list, names the requirement."""
    if requirement in os.environ.get("QUORATE_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)
