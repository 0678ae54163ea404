"""Pools of brokers that are made smaller where the manifest refuses to drain brokers for that."""

import pytest
from kit.operators.operated import SMALL_FILES, Operated
from quorate_admin.types.topics import NewTopic

STAYS, LEFT_OVER = 0, 1
TIMEOUT_S = 600
BROKERS_TIMEOUT_S = 300


@pytest.mark.timeout(TIMEOUT_S)
def test_a_smaller_pool_keeps_brokers_with_replicas(brokered: Operated) -> None:
    """They are drained once they are named, and with the throttle of their pool."""
    operated = brokered
    operated.create(replicas=1)
    config = {**SMALL_FILES, "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    drain = {"onScaleDown": "Refuse", "throttleBytesPerSecond": "20Mi"}
    operated.create_brokers(replicas=2, config=config, drain=drain)
    operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(STAYS, LEFT_OVER), "two brokers", BROKERS_TIMEOUT_S)
    topic = NewTopic(name="orders", assignments={0: [LEFT_OVER]})
    operated.asking(STAYS)(lambda client: client.create_topics([topic])).raise_any()
    pods = operated.pod_uids()

    operated.patch_brokers(replicas=1)
    operated.wait(
        lambda: operated.brokers_condition("Stalled").get("reason") == "ScaleDownRefused", "the refusal"
    )
    message = operated.brokers_condition("Stalled")["message"]
    assert message.startswith(f"broker-{LEFT_OVER} stays, as drain.onScaleDown of brokers asks")
    assert operated.pod_uids() == pods
    operated.patch_brokers(replicas=2)
    operated.wait(lambda: operated.brokers_settled(STAYS, LEFT_OVER), "nothing to have happened")

    operated.patch_brokers(replicas=1, decommission=[LEFT_OVER])
    operated.wait(lambda: operated.brokers_settled(STAYS), "the broker to have left", BROKERS_TIMEOUT_S)
    assert [note for note in operated.events("SetThrottles") if "20971520 bytes per second" in note]
    assert [note for note in operated.events("SetThrottles") if "no longer" in note]
    described = operated.asking(STAYS)(lambda client: client.describe_topics(["orders"]))["orders"]
    assert [partition.replicas for partition in described.partitions] == [(STAYS,)]
