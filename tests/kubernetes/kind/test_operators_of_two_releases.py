"""The operator of a former commit: beside the present one, upgraded to it and rolled back, with clients all the time.

The tests run in order, each on the state that the previous one left. The definitions are always the newest.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.images import QUORATE
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.operators.former_release import FormerRelease, former_release
from kit.operators.installation import (
    BROKERS,
    CONTROLLERS,
    POOL,
    QUORUM,
    TIMEOUT_S,
    TOOLS,
    Installation,
    resource,
)
from kit.operators.pod_clients import PodClients
from kit.pauses import RecordPause
from kit.requirements import missing
from kit.waiting import eventually

# The first test pays for the images, which are built from their sources when nothing is cached, and for the cluster.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

_LOG = logging.getLogger(__name__)
CONTROLLER_IDS = (3000, 3001, 3002)
COPIES = 3
PAUSE_S_MAX = 30.0
"""A pod takes its address along: a connection to it fails only after 10 s."""


@dataclass(slots=True)
class Releases:
    """Two installations with a cluster each: `former` begins with the former release."""

    former: Installation
    present: Installation
    former_release: FormerRelease
    clients: PodClients
    clients_of_present: PodClients

    def values(self, installation: Installation, **more: str) -> list[str]:
        """Values of a release that manages one namespace."""
        return installation.values(watchNamespaces=f"{{{installation.namespace}}}", **more)


@pytest.fixture(scope="module")
def releases(kind_cluster: KindCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    """Both releases of the chart, each with a namespace; all of it is gone when the tests end."""
    try:
        release = former_release(kind_cluster, tmp_path_factory.mktemp("former"), os.environ, _LOG.info)
    except LocalKubernetesError as error:
        missing("kind", f"{error}")
    former = Installation(kind_cluster, "former", "quorate-former", "quorate-former-system")
    present = Installation(kind_cluster, "present")
    both = Releases(former, present, release, PodClients(former, COPIES), PodClients(present, 1))
    for installation in (former, present):
        installation.create_namespace()
    with (
        present.released(both.values(present)),
        former.released(both.values(former, **release.values()), release.chart),
    ):
        yield both
        for installation in (former, present):
            installation.remove()


def test_each_operator_restarts_its_own_nodes(releases: Releases) -> None:
    former, present = releases.former, releases.present
    former.create()
    present.apply(
        resource("KafkaController", QUORUM, CONTROLLERS),
        resource("KafkaBroker", BROKERS, {**POOL, "replicas": 1}),
        TOOLS,
    )
    former.wait_ready(CONTROLLER_IDS)
    present.wait_ready(CONTROLLER_IDS, (0,))
    former.create_topic(COPIES)
    present.create_topic(copies=1, in_sync_min=1)
    releases.clients.start()
    releases.clients_of_present.start()
    assert _images(former) == {releases.former_release.image}
    assert _images(present) == {QUORATE}

    for installation, other, brokers in ((former, present, (0, 1, 2)), (present, former, (0,))):
        before, others = installation.uids(QUORUM), _uids(other)
        installation.kubectl("annotate", "kafkacontroller", QUORUM, "quorate.dev/restart=once")
        _wait_replaced(installation, before)
        installation.wait_ready(CONTROLLER_IDS, brokers)
        assert _uids(other) == others


def test_the_operator_is_upgraded_under_load(releases: Releases) -> None:
    """Controllers get the image of the new operator one after the other; brokers run on."""
    former = releases.former
    before, brokers = former.uids(QUORUM), former.uids(BROKERS)
    former.upgrade(releases.values(former, **{"crds.install": "false"}))
    _wait_replaced(former, before)
    former.wait_ready(CONTROLLER_IDS)
    assert _images(former) == {QUORATE}
    assert former.uids(BROKERS) == brokers


def test_the_operator_is_rolled_back_under_load(releases: Releases, record_pause: RecordPause) -> None:
    """Nothing acknowledged was lost on the way forth and back, nor beside it."""
    former, present = releases.former, releases.present
    before, brokers, others = former.uids(QUORUM), former.uids(BROKERS), _uids(present)
    former.helm("rollback", former.release, "--wait")
    _wait_replaced(former, before)
    former.wait_ready(CONTROLLER_IDS)
    assert _images(former) == {releases.former_release.image}
    assert former.uids(BROKERS) == brokers
    assert _uids(present) == others
    for clients in (releases.clients, releases.clients_of_present):
        records, topics = clients.stop_without_loss()
        record_pause(records.pauses.longest_s, "records", max_s=PAUSE_S_MAX)
        record_pause(topics.pauses.longest_s, max_s=PAUSE_S_MAX)


def _wait_replaced(installation: Installation, before: dict[str, str]) -> None:
    """Until each of these controllers has another pod."""
    eventually(
        lambda: not before.items() & installation.uids(QUORUM).items(),
        TIMEOUT_S,
        "every controller to be restarted",
        installation.state,
    )


def _uids(installation: Installation) -> dict[str, str]:
    return installation.uids(QUORUM) | installation.uids(BROKERS)


def _images(installation: Installation) -> set[str]:
    """The images of controllers."""
    pods = installation.get("pods")["items"]
    return {
        pod["spec"]["containers"][0]["image"]
        for pod in pods
        if pod["metadata"]["name"].startswith(f"{QUORUM}-")
    }
