"""Budgets of failed logins by address."""

import pytest
from quorate_controller.security.guesses import BUDGETS_MAX, FAILURE_INTERVAL_S, FAILURES_MAX, Guesses


def fail(guesses: Guesses, host: str, name: str, times: int, now_s: float = 0.0) -> None:
    """Fail `count` times."""
    for _ in range(times):
        guesses.failed(host, name, now_s)


def test_an_address_has_a_budget_that_refills() -> None:
    guesses = Guesses()
    for number in range(FAILURES_MAX):
        assert guesses.allows("10.0.0.1", f"user-{number}", 0.0)
        guesses.failed("10.0.0.1", f"user-{number}", 0.0)
    assert not guesses.allows("10.0.0.1", "alice", 0.0)
    assert guesses.allows("10.0.0.2", "alice", 0.0)
    assert not guesses.allows("10.0.0.1", "alice", FAILURE_INTERVAL_S - 0.1)
    assert guesses.allows("10.0.0.1", "alice", FAILURE_INTERVAL_S)
    guesses.failed("10.0.0.1", "alice", FAILURE_INTERVAL_S)
    assert not guesses.allows("10.0.0.1", "alice", FAILURE_INTERVAL_S)
    day_s, guessed = 86_400, 0
    for now_s in range(100, day_s):
        while guesses.allows("10.0.0.1", "alice", now_s):
            guesses.failed("10.0.0.1", "alice", now_s)
            guessed += 1
    assert guessed <= day_s / FAILURE_INTERVAL_S


def test_a_stranger_does_not_lock_out_who_has_logged_in() -> None:
    """A node behind the address of a stranger comes back."""
    guesses = Guesses()
    guesses.succeeded("10.0.0.1", "node", 0.0)
    fail(guesses, "10.0.0.1", "stranger", FAILURES_MAX)
    assert not guesses.allows("10.0.0.1", "stranger", 0.0)
    assert guesses.allows("10.0.0.1", "node", 0.0)
    guesses.succeeded("10.0.0.1", "node", 0.0)
    fail(guesses, "10.0.0.1", "node", FAILURES_MAX)
    assert not guesses.allows("10.0.0.1", "node", 0.0)
    assert guesses.allows("10.0.0.2", "node", 0.0)
    assert guesses.allows("10.0.0.1", "node", 10 * FAILURE_INTERVAL_S)


@pytest.mark.parametrize(
    ("address", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_a_network_of_ipv6_is_one_address(address: str, other: str, is_same: bool) -> None:
    guesses = Guesses()
    fail(guesses, address, "alice", FAILURES_MAX)
    assert guesses.allows(other, "alice", 0.0) != is_same


def test_the_memory_is_bounded() -> None:
    guesses = Guesses()
    for number in range(BUDGETS_MAX + 500):
        guesses.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "x", 0.0)
        guesses.succeeded("10.0.0.1", f"user-{number}", 0.0)
    guesses.succeeded("10.0.0.1", "x" * 10_000, 0.0)
    assert len(guesses._of_hosts) == BUDGETS_MAX
    assert len(guesses._of_users) == BUDGETS_MAX
    assert max(len(name) for _, name in guesses._of_users) < 20
