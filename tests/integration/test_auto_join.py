"""controller.quorum.auto.join.enable (Kafka 4.2): controllers that make themselves voters, led by either kind."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import manifests
from kit.membership import Membership
from kit.waiting import eventually

pytestmark = pytest.mark.integration

AUTO_JOIN = {"controller.quorum.auto.join.enable": "true"}
FAST = {"controller.quorum.fetch.timeout.ms": 1_000}
"""A controller looks once in this time whether it is a voter."""
FOUNDER, JAVA, JOINER = 3000, 3001, 3002
TIMEOUT_S = 40


@pytest.fixture(params=["python", "java"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, kafka_jars: Path) -> Iterator[Membership]:
    """A quorum of one founder, of each kind, and two controllers that are to join by themselves."""
    java = (JAVA,) if request.param == "python" else (FOUNDER,)
    manifest = manifests(java=java, brokers=0, config=FAST)
    built = Membership.found(tmp_path / "cluster", kafka_jars, manifest, founders=1)
    try:
        for node_id in (JAVA, JOINER):
            built.configure(node_id, AUTO_JOIN)
        yield built.start_founders()
    finally:
        built.close()


def test_controllers_join_replace_themselves_and_come_back(cluster: Membership) -> None:
    """What the configuration's page says of it: an observer becomes a voter, a new disk replaces the old one,
    and who is removed while it runs is back. Ours join leaders of both kinds; Java's join ours.
    """
    cluster.format(JAVA, JOINER)
    cluster.start(JAVA, JOINER)
    cluster.await_voters(FOUNDER, JAVA, JOINER)

    lost = cluster.directory_id(JOINER)
    cluster.kill(JOINER)
    shutil.rmtree(cluster.data(JOINER))
    cluster.format(JOINER)
    cluster.start(JOINER)
    cluster.await_voters(FOUNDER, JAVA, JOINER)
    assert cluster.directory_id(JOINER) != lost

    cluster.remove(JOINER, cluster.directory_id(JOINER))
    cluster.await_voters(FOUNDER, JAVA, JOINER)

    cluster.terminate(JOINER)
    cluster.remove(JOINER, cluster.directory_id(JOINER))
    eventually(lambda: JOINER not in cluster.voters(), TIMEOUT_S, "it to be removed")
    cluster.await_quorum(FOUNDER, JAVA)
