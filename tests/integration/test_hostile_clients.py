"""Controllers under attack, as real processes: heartbeats, elections and memory stay within bounds.

`make hostile` runs all attacks on all kinds of listeners, for longer.
"""

import os
from pathlib import Path

import pytest
from kit.hostile.attacks import ATTACKS
from kit.hostile.report import violations
from kit.hostile.siege import besieged

pytestmark = pytest.mark.integration

SECONDS = 1.5
CONNECTIONS_MAX = {"slow-login": 100}
"""Handshakes of more take longer than the attack on a busy machine. By default 1,000."""
ON = {
    "PLAINTEXT": ("connections", "vanished", "slow-loris", "announced", "announced-first", "no-reader"),
    "SASL_SSL": ("slow-login", "announced-first", "lengths", "no-reader", "throttled", "hellos", "guesses"),
}
"""Each attack where it is worst."""
APPLIES = {
    "announced": "queued.max.request.bytes",
    "lengths": "socket.request.max.bytes",
    "throttled": "controller_mutation_rate",
    "hellos": "handshakes",
}
"""The limit that has to be counted under an attack."""


@pytest.mark.parametrize("protocol", list(ON))
def test_hostile_clients_disturb_nobody(tmp_path: Path, protocol: str) -> None:
    """A client that reaches a listener can't depose the leader, fence brokers or fill the memory."""
    with besieged(tmp_path, protocol) as siege:
        for name in ON[protocol]:
            attack = ATTACKS[name]
            if attack.needs_root and os.geteuid() != 0:
                continue
            figures = siege.stand(name, SECONDS, min(attack.size, CONNECTIONS_MAX.get(name, 1_000)))
            assert violations(figures) == [], f"{name}: {figures}"
            assert figures.did.get("connections", 0) > 0, f"{name} has attacked nobody: {figures.did}"
            if name in APPLIES:
                assert figures.limited[APPLIES[name]] > 0, f"{name}: {figures.limited}"
