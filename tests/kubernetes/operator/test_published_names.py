"""Names that lead to nodes are Services of a real API server: for one node, with their window written down."""

from collections.abc import AsyncIterator

import kubernetes.client
import pytest
import pytest_asyncio
from kit.local_kubernetes.api_server import ApiServer
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import load_kube_config
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import Address, DesiredNode
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.steps import PublishAddress, RetireAddress, StepError, WithdrawAddress
from quorate_operator.resources.completion import complete
from quorate_operator.resources.facts import Context, Facts, Images
from quorate_operator.runtime.kubernetes.addresses import PublishedNames
from quorate_operator.runtime.kubernetes.api import SERVICE, KubernetesApi
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.objects import ClusterObjects

MANIFESTS = """
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum, uid: 7a4a3ad2-5c64-4b5c-8c4f-1d1d7b5d2a60}
spec: {advertisedHost: "c{nodeId}.%s.svc"}
"""


class Names:
    """Published names of a cluster in a namespace, and its nodes."""

    def __init__(self, api: KubernetesApi, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        manifests = load_manifests(MANIFESTS % namespace, "test")
        facts = Facts(namespace=namespace, images=Images(quorate="quorate:1"))
        self.context = Context(manifests=manifests, facts=facts)
        self.nodes = complete(desired_cluster(manifests), manifests, facts).nodes
        self.reread()

    def reread(self) -> None:
        """Forget what was seen, as an operator that starts."""
        self.objects = ClusterObjects(self.api, ObjectCache(), namespace=self.namespace, cluster="quorum")
        self.names = PublishedNames(self.objects)

    async def observe(self) -> None:
        """See every Service."""
        for service in (await self.api.list(SERVICE, self.namespace))[0]:
            self.objects.seen(service)

    def address(self, node: DesiredNode) -> Address:
        """The address that the manifests give a node."""
        return node.advertised["CONTROLLER"]

    async def publish(self, address: Address, node: DesiredNode) -> None:
        """Point the address at the node."""
        action = PublishAddress(
            address=address, node_id=node.node_id, listener="CONTROLLER", reason="it is new"
        )
        await self.names.publish(self.context, action, node)


@pytest_asyncio.fixture
async def names(api_server: ApiServer, namespace: str) -> AsyncIterator[Names]:
    """Nothing is published yet."""
    settings = Configuration()
    await load_kube_config(config_file=f"{api_server.kubeconfig}", client_configuration=settings)
    api = KubernetesApi(settings)
    try:
        yield Names(api, namespace)
    finally:
        await api.close()


def _service(client: kubernetes.client.ApiClient, names: Names, name: str) -> kubernetes.client.V1Service:
    return kubernetes.client.CoreV1Api(client).read_namespaced_service(name, names.namespace)


async def test_a_name_lives_through_its_window(names: Names, api_client: kubernetes.client.ApiClient) -> None:
    """Published, retired, withdrawn; each step can be done again, by an operator that forgot everything."""
    first = names.nodes[0]
    address = names.address(first)
    assert address in first.controlled
    retire = RetireAddress(address=address, node_id=first.node_id, reason="nobody advertises it")
    withdraw = WithdrawAddress(address=address, node_id=first.node_id, reason="its window is over")

    await names.publish(address, first)
    version = _service(api_client, names, "c3000").metadata.resource_version
    names.reread()
    await names.observe()
    await names.publish(address, first)
    service = _service(api_client, names, "c3000")
    assert service.metadata.resource_version == version
    assert service.spec.selector["quorate.dev/node-id"] == "3000"
    assert service.spec.publish_not_ready_addresses
    assert [publication.retired_at_ms for publication in names.names.all()] == [None]

    await names.names.change(names.context, retire, first)
    (retired,) = names.names.all()
    assert retired.retired_at_ms is not None
    names.reread()
    await names.observe()
    await names.names.change(names.context, retire, first)
    assert list(names.names.all()) == [retired]
    assert _service(api_client, names, "c3000").spec.selector["quorate.dev/node-id"] == "3000"

    for _ in range(2):
        await names.names.change(names.context, withdraw, first)
    assert list(names.names.all()) == []
    with pytest.raises(kubernetes.client.ApiException) as gone:
        _service(api_client, names, "c3000")
    assert gone.value.status == 404


async def test_a_name_of_another_node_is_refused(names: Names) -> None:
    first, second = names.nodes[:2]
    await names.publish(names.address(first), first)
    with pytest.raises(StepError, match="still leads to node 3000"):
        await names.publish(names.address(first), second)


async def test_a_service_of_somebody_else_is_left_alone(
    names: Names, api_client: kubernetes.client.ApiClient
) -> None:
    body = {
        "metadata": {"name": "c3000", "labels": {"quorate.dev/cluster": "quorum"}},
        "spec": {"ports": [{"port": 80}]},
    }
    kubernetes.client.CoreV1Api(api_client).create_namespaced_service(names.namespace, body)
    await names.observe()
    with pytest.raises(StepError, match="the Service c3000 exists already"):
        await names.publish(names.address(names.nodes[0]), names.nodes[0])
