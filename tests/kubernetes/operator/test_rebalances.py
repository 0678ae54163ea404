"""A KafkaRebalance under a real operator, on our controllers and stock brokers."""

import re
import subprocess
import sys

import pytest
from kit.ledger import consume_numbers
from kit.operators.operated import QUORUM, Operated
from kit.operators.rebalances import (
    BROKERS_TIMEOUT_S,
    CONFIG,
    FAST,
    PARTITIONS,
    RECORDS,
    SLOW,
    TOPIC,
    Rebalances,
    producing,
)

RATES = {"leader.replication.throttled.rate": "5000", "follower.replication.throttled.rate": "5000"}


@pytest.mark.timeout(900)
def test_a_scale_up_from_proposal_to_stop_to_balance(brokered: Operated) -> None:
    """Replicas move to a new broker when that is approved, throttled; a stop and the end leave nothing
    behind.
    """
    operated = brokered
    operated.create(replicas=1)
    operated.create_brokers(replicas=2, config=CONFIG)
    operated.start_operator("--no-leader-election", "--drift-interval=2")
    operated.wait(lambda: operated.brokers_settled(0, 1), "two brokers to be ready", BROKERS_TIMEOUT_S)
    rebalances = Rebalances(operated)
    rebalances.make_topic()
    rebalances.create("even", throttleBytesPerSecond=SLOW, partitionsAtATime=3, topics={"include": [TOPIC]})
    status = rebalances.wait_for("even", "Balanced")
    assert status["proposal"]["partitions"] == 0

    # A new broker voids it; nothing moves before the new one is approved.
    operated.patch_brokers(replicas=3)
    operated.wait(lambda: operated.brokers_settled(0, 1, 2), "a third broker", BROKERS_TIMEOUT_S)
    status = rebalances.wait_for("even", "ProposalReady")
    assert status["proposal"]["brokers"] == [0, 1, 2]
    assert status["proposal"]["partitions"] == 5
    assert status["proposal"]["sizeBytes"] > RECORDS * 4_096 * 5 // 8 // 2
    assert {broker["brokerId"]: broker["replicasAfter"] for broker in status["brokers"]}[2] == 5
    assert rebalances.replicas_on() == {0: 8, 1: 8}

    # Stopped in the middle.
    rebalances.approve("even")
    operated.wait(lambda: rebalances.moving() == 3, "three partitions on the move")
    there = rebalances.throttles()
    assert RATES.items() <= there.items()
    assert there["follower.replication.throttled.replicas"].count(":2") == 3
    rebalances.patch("even", stopped=True)
    rebalances.wait_for("even", "Stopped")
    assert (rebalances.moving(), rebalances.throttles()) == (0, {})
    assert rebalances.replicas_on() == {0: 8, 1: 8}

    # To its end.
    with producing(rebalances.servers) as acknowledged:
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "quorate.kubectl",
                    "rebalance",
                    QUORUM,
                    f"--throttle={FAST}",
                    "--wait",
                ),
                *("--kubeconfig", f"{operated.server.kubeconfig}", "--namespace", operated.namespace),
            ],
            stdout=subprocess.PIPE,
            text=True,
            timeout=200,
            check=True,
        )
    # Five are to move; while logs grow, a later slice may prefer other leaders, too.
    moved = re.search(r"(\d+) partition\(s\) in", done.stdout)
    assert moved is not None, done.stdout
    assert int(moved[1]) >= 5, done.stdout
    assert rebalances.is_in("even", "Balanced")
    assert rebalances.is_even()
    numbers = set(consume_numbers(rebalances.servers, TOPIC, PARTITIONS))
    assert numbers >= {*range(RECORDS), *acknowledged}
    assert len(acknowledged) > 10
    rebalances.delete("even")
    operated.wait(lambda: rebalances.read("even") is None, "the resource to go")
    assert not operated.operators[-1].errors()
