"""An API server that is away for two minutes while nodes are restarted by elected operators and clients write."""

from collections.abc import Iterator
from http import HTTPStatus

import pytest
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.operators.installation import BROKERS, GRACE_S, QUORUM, TIMEOUT_S, Installation
from kit.operators.pod_clients import PodClients
from kit.pauses import RecordPause
from kit.waiting import eventually
from prometheus_client.parser import text_string_to_metric_families

# The test pays for the cluster and the images, which are built from their sources when nothing is cached.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

NAMESPACE = "away"
CONTROLLER_IDS = (3000, 3001, 3002)
COPIES = 3
AWAY_S = 120
UNREAD = "quorate_api_server_unread_seconds"
PAUSE_S_MAX = 30.0
"""A pod takes its address along: a connection to it fails only after 10 s."""


@pytest.fixture(scope="module")
def away(kind_cluster: KindCluster) -> Iterator[Installation]:
    """The operator, and a namespace that is gone when the test ends."""
    installation = Installation(kind_cluster, NAMESPACE)
    with installation.released(installation.values()):
        yield installation
        installation.remove()


def test_a_roll_ends_well_after_the_api_server_was_away(
    away: Installation, record_pause: RecordPause
) -> None:
    """Operators lose their Lease and start without an API server; each node restarts once, and no record is lost."""
    away.create()
    away.wait_ready(CONTROLLER_IDS)
    away.create_topic(COPIES)
    clients = PodClients(away, COPIES)
    clients.start()
    operators = away.operator_addresses()
    assert len(operators) == 2
    before = _uids(away)
    for kind, name in (("kafkacontroller", QUORUM), ("kafkabroker", BROKERS)):
        away.kubectl("annotate", kind, name, "quorate.dev/restart=once")
    eventually(lambda: _uids(away) != before, TIMEOUT_S, "the first restart", away.state)
    with away.cluster.without_api_server():

        def unread_s() -> float:
            return max(_unread_s(away, address) for address in operators)

        eventually(lambda: unread_s() >= AWAY_S, AWAY_S + GRACE_S * 2, "two minutes", unread_s)
        statuses = [away.served_by(address, "/readyz")[0] for address in operators]
        assert HTTPStatus.SERVICE_UNAVAILABLE in statuses
        assert [away.served_by(address, "/healthz")[0] for address in operators] == [HTTPStatus.OK] * 2

    eventually(
        lambda: not before.items() & _uids(away).items(), TIMEOUT_S, "every node to be restarted", away.state
    )
    away.wait_ready(CONTROLLER_IDS)
    so_far = away.pods_so_far()
    assert {name: so_far[name] for name in before} == dict.fromkeys(before, 2)
    records, topics = clients.stop_without_loss()
    record_pause(records.pauses.longest_s, "records", max_s=PAUSE_S_MAX)
    record_pause(topics.pauses.longest_s, max_s=PAUSE_S_MAX)


def _uids(away: Installation) -> dict[str, str]:
    return away.uids(QUORUM) | away.uids(BROKERS)


def _unread_s(away: Installation, address: str) -> float:
    """For how long an operator has read nothing; 0 while it starts."""
    status, text = away.served_by(address, "/metrics")
    if status != HTTPStatus.OK:
        return 0.0
    families = text_string_to_metric_families(text)
    return next(family.samples[0].value for family in families if family.name == UNREAD)
