"""How many passwords may be guessed from one address: failed logins are counted, and further ones held back.

Each address has a budget of failures that refills slowly. When it is empty, no password from there is checked: the
response to a right one is the same as to a wrong one. Users that have logged in from the address before have budgets
of their own, so that a stranger behind the same address does not lock them out.

Pure: time is a parameter, in seconds of a monotonic clock.
"""

from collections import OrderedDict
from typing import Final

from quorate_protocol.counted_address import counted_address

FAILURES_MAX: Final = 100
"""Failed logins at once, with PLAIN or SCRAM."""
FAILURE_INTERVAL_S: Final = 5.0
"""After this time one more may fail: 17,280 a day."""
BUDGETS_MAX: Final = 4096
"""Budgets of addresses that are kept, and as many of users. Those that were used longest ago are forgotten."""
NAME_LENGTH_MAX: Final = 512
"""Users with longer names have no budget of their own."""


class _Budget:
    """The failures that are left, and since when."""

    __slots__ = ("left", "since_s")

    def __init__(self, now_s: float) -> None:
        self.left = float(FAILURES_MAX)
        self.since_s = now_s

    def at(self, now_s: float) -> float:
        self.left = min(float(FAILURES_MAX), self.left + (now_s - self.since_s) / FAILURE_INTERVAL_S)
        self.since_s = now_s
        return self.left


class Guesses:
    """The budgets of one listener."""

    def __init__(self) -> None:
        self._of_hosts: OrderedDict[str, _Budget] = OrderedDict()
        self._of_users: OrderedDict[tuple[str, str], _Budget] = OrderedDict()
        """Budgets of users that have logged in, by address and name."""

    def allows(self, host: str, name: str, now_s: float) -> bool:
        """Whether the credentials of a user at an address may be checked."""
        budget = self._budget(counted_address(host), name)
        return budget is None or budget.at(now_s) >= 1.0

    def failed(self, host: str, name: str, now_s: float) -> None:
        """Count wrong credentials."""
        network = counted_address(host)
        budget = self._budget(network, name)
        if budget is None:
            budget = self._of_hosts[network] = _Budget(now_s)
            if len(self._of_hosts) > BUDGETS_MAX:
                self._of_hosts.popitem(last=False)
        budget.left = max(0.0, budget.at(now_s) - 1.0)

    def succeeded(self, host: str, name: str, now_s: float) -> None:
        """Give a user that has logged in a budget of its own, if it has none."""
        user = counted_address(host), name
        if len(name) > NAME_LENGTH_MAX:
            return
        if user not in self._of_users:
            self._of_users[user] = _Budget(now_s)
            if len(self._of_users) > BUDGETS_MAX:
                self._of_users.popitem(last=False)
        self._of_users.move_to_end(user)

    def _budget(self, network: str, name: str) -> _Budget | None:
        """The budget of a user at an address, if it has one, else that of the address, None for a full one."""
        own = self._of_users.get((network, name))
        if own is not None:
            return own
        budget = self._of_hosts.get(network)
        if budget is not None:
            self._of_hosts.move_to_end(network)
        return budget
