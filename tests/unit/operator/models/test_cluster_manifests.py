"""The manifests of whole clusters: hosts, exposure, volumes, rollouts, who is to leave."""

import pytest
from kit.desired_cluster import manifest_fault
from quorate_operator.models.base import duration_ms, quantity_bytes
from quorate_operator.models.manifests import ManifestError, joined, load_manifests, load_object
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController

CONTROLLERS = (
    "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum%s}\nspec: {%s}\n"
)
BROKERS = (
    "---\napiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\nmetadata: {name: brokers}\n"
    "spec: {controllers: quorum, %s}\n"
)


def controllers(spec: str = "", annotations: str = "") -> KafkaController:
    """The quorum of a manifest that must be accepted."""
    noted = f", annotations: {{{annotations}}}" if annotations else ""
    return load_manifests(CONTROLLERS % (noted, spec), "m.yaml").controllers


def brokers(spec: str) -> KafkaBroker:
    """The pool of a manifest that must be accepted."""
    (pool,) = load_manifests(CONTROLLERS % ("", "") + BROKERS % spec, "m.yaml").brokers
    return pool


def fault_of(controllers_spec: str = "", brokers_spec: str | None = None, annotations: str = "") -> str:
    """The message about a manifest that must be refused."""
    noted = f", annotations: {{{annotations}}}" if annotations else ""
    text = CONTROLLERS % (noted, controllers_spec)
    text += "" if brokers_spec is None else BROKERS % brokers_spec
    return manifest_fault(text)


@pytest.mark.parametrize(
    ("spec", "ids"),
    [
        ("replicas: 3, decommission: [3002]", (3000, 3001, 3003)),
        ("replicas: 2, decommission: [3002]", (3000, 3001)),
        ("replicas: 2, decommission: [3000, 3001]", (3002, 3003)),
        ("replicas: 1, nodeIds: {first: 7}", (7,)),
    ],
)
def test_a_pool_uses_the_first_ids_that_are_not_to_leave(spec: str, ids: tuple[int, ...]) -> None:
    quorum = controllers(spec)
    assert quorum.spec.all_node_ids() == ids
    assert set(quorum.spec.claimed_node_ids()) == {*ids, *quorum.spec.decommission}


@pytest.mark.parametrize(
    ("controllers_spec", "brokers_spec", "fault"),
    [
        (
            "decommission: [2999]",
            None,
            "spec.decommission: 2999 is not a node id of this pool, which has",
        ),
        ("decommission: [3100]", None, "3100 is not a node id of this pool, which has 3000 to 3099"),
        ("decommission: [3001, 3001]", None, "spec.decommission: 3001 is listed more than once"),
        (
            "rollout: {maxUnavailable: 2}",
            None,
            "spec.rollout.maxUnavailable: 2: must be less than or equal to 1",
        ),
        ("rollout: {overlap: 10}", None, "spec.rollout.overlap: 10: must be text; put it in quotes"),
        (
            "rollout: {overlap: 1w}",
            None,
            "spec.rollout.overlap: '1w': must be a number and a unit of ms, s, m, h, d",
        ),
        ("storage: {size: big}", None, "spec.storage.size: 'big': must be a number of bytes with a unit"),
        ("storage: {size: 0}", None, "spec.storage.size: 0: must be more than 0"),
        (
            "storage: {onDecommission: Burn}",
            None,
            "spec.storage.onDecommission: 'Burn': must be 'Retain' or 'Delete'",
        ),
        (
            "storage: {volumes: [{id: 0}]}",
            None,
            "spec.storage.volumes: a controller has one volume, for its metadata log: set size and className instead",
        ),
        (
            "",
            "storage: {size: 1Gi, volumes: [{id: 0}]}",
            "spec.storage.volumes: must not be set beside size and className",
        ),
        ("", "storage: {className: fast, volumes: [{id: 0}]}", "must not be set beside size and className"),
        ("", "storage: {volumes: [{id: 1}]}", "spec.storage.volumes: must have the id 0"),
        ("", "storage: {volumes: [{id: 0}, {id: 2}, {id: 2}]}", "volumes: id 2 is listed more than once"),
        (
            "",
            "storage: {volumes: [{id: 100}]}",
            "spec.storage.volumes[0].id: 100: must be less than or equal to 99",
        ),
        ("", "storage: {volumes: []}", "spec.storage.volumes"),
        (
            "advertisedHost: 'a{node}'",
            None,
            "spec.advertisedHost: 'a{node}': must be a host; placeholders are {nodeId}",
        ),
        (
            "advertisedHost: same",
            None,
            "spec.advertisedHost: 'same' is the same for all 3 nodes; use {nodeId}, {off",
        ),
        (
            "nodes: [{nodeId: 3000, advertisedHosts: {CLIENTS: a}}]",
            None,
            "spec.nodes: 3000: advertisedHosts: CLIENTS: no such listener; there are CONTROLLER",
        ),
        (
            (
                "nodes: [{nodeId: 3000, advertisedHosts: {CONTROLLER: a}}, "
                "{nodeId: 3001, advertisedHosts: {CONTROLLER: A}}]"
            ),
            None,
            "spec.nodes: 3001: advertisedHosts: CONTROLLER: 'A' is the host of 3000 already; a host names one node",
        ),
        (
            "listeners: [{name: C, tls: {}}]",
            None,
            "spec.listeners[0].tls: is allowed with protocol SSL and SASL_SSL only; protocol is PLAINTEXT",
        ),
        (
            "",
            "decommission: [3000]",
            "spec.decommission: 3000: node id 3000 belongs to KafkaController quorum",
        ),
        (
            "decommission: [3050]",
            "replicas: 1, nodeIds: {first: 3050}",
            "node id 3050 belongs to KafkaController",
        ),
        (
            "",
            "listeners: [{name: A, tls: {secretName: s}}]",
            "spec.listeners[0].tls: is allowed with protocol SSL and SASL_SSL only; protocol is PLAINTEXT",
        ),
        (
            "",
            "listeners: [{name: A, exposure: {type: Gateway}}]",
            "type: 'Gateway': must be 'Internal', 'LoadBal",
        ),
        (
            "",
            "listeners: [{name: A, exposure: {type: LoadBalancer, sourceRanges: [10.0.0.1/8]}}]",
            "exposure.sourceRanges[0]: '10.0.0.1/8': must be a network like 10.0.0.0/8",
        ),
        (
            "",
            "listeners: [{name: A, exposure: {type: NodePort, sourceRanges: [10.0.0.0/8]}}]",
            "sourceRanges: is allowed with type LoadBalancer only; type is NodePort",
        ),
        (
            "",
            "listeners: [{name: A, exposure: {type: Route, ingressClassName: a}}]",
            "ingressClassName: is allowed with type Ingress only; type is Route",
        ),
        (
            "",
            "listeners: [{name: A, exposure: {type: External, bootstrapHost: a}}]",
            "bootstrapHost: is allowed with type LoadBalancer, NodePort, Ingress and Route only; type is External",
        ),
        (
            "",
            "listeners: [{name: A, advertisedHost: 'b{nodeId}', exposure: {type: Ingress}}]",
            "protocol: must be SSL or SASL_SSL with exposure.type Ingress and Route",
        ),
        (
            "",
            "listeners: [{name: A, exposure: {type: External}}]",
            "spec.listeners[0].advertisedHost: is required with",
        ),
        (
            "",
            "listeners: [{name: A, advertisedPort: 0}]",
            "spec.listeners[0].advertisedPort: 0: must be greater than",
        ),
        (
            "",
            "listeners: [{name: A, interimHost: one}]",
            "spec.listeners[0].interimHost: 'one' is the same for all 3",
        ),
        (
            "",
            "rack: {topologyKey: zone}, nodes: [{nodeId: 2, rack: a}]",
            "spec.nodes: 2: rack: spec.rack gives each node a rack; remove one of them",
        ),
        (
            "",
            "rack: {topologyKey: zone}, config: {broker.rack: a}",
            "spec.config: broker.rack: follows from spec.rack; remove one of them",
        ),
        (
            "",
            "rack: {topologyKey: zone}, config: {config.providers: env}",
            "spec.config: config.providers: follows from spec.rack; remove one of them",
        ),
        (
            "",
            "template: {sidecars: [{name: a}, {image: b}]}",
            "spec.template.sidecars[1].name: missing; it must be given",
        ),
        (
            "template: {sidecars: [{name: node, image: b}]}",
            None,
            "spec.template.sidecars[0].name: 'node': is that of a container of Quorate",
        ),
        (
            "",
            "template: {probes: {liveness: {periodSeconds: 0}}}",
            "spec.template.probes.liveness.periodSeconds: 0: must be greater than or equal to 1",
        ),
        ("", "rack: {topologyKey: ''}", "spec.rack.topologyKey: '': must have at least 1 character"),
        ("", "nodes: [{nodeId: 0, rack: ''}]", "spec.nodes[0].rack: '': must have at least 1 character"),
        ("", "template: {resources: {limits: {memory: lots}}}", "limits.memory: 'lots': must match pattern"),
        (
            "",
            "template: {imagePullPolicy: Maybe}",
            "imagePullPolicy: 'Maybe': must be 'Always', 'IfNotPresent' or",
        ),
    ],
)
def test_faults_name_the_field_the_value_and_what_is_allowed(
    controllers_spec: str, brokers_spec: str | None, fault: str
) -> None:
    """A user can repair a manifest from the message alone."""
    said = fault_of(controllers_spec, brokers_spec)
    assert fault in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("recovery", "fault"),
    [
        ("{survivor: 3001}", "recovery"),
        ("{survivor: 3001, clusterId: abc, leaderEpoch: 4}", "recovery.clusterId: 'abc'"),
        ("{survivor: -1, clusterId: mRn6LvYdTWmUOSNFgPmBhw, leaderEpoch: 4}", "recovery.survivor: -1"),
    ],
)
def test_a_recovery_names_one_loss(recovery: str, fault: str) -> None:
    assert fault in fault_of(f"recovery: {recovery}")


def test_a_recovery_may_stay_when_its_survivor_has_left() -> None:
    """It has no effect any more, and refuses nothing."""
    recovery = "{survivor: 3009, clusterId: mRn6LvYdTWmUOSNFgPmBhw, leaderEpoch: 4}"
    assert controllers(f"recovery: {recovery}").spec.recovery is not None


def test_hosts_come_from_the_node_or_the_template() -> None:
    pool = brokers(
        "listeners: [{name: IN}, {name: OUT, advertisedHost: 'b{nodeId}.example.com', interimHost: 'i{nodeId}'}], "
        "nodes: [{nodeId: 1, rack: east, advertisedHosts: {OUT: special}}]"
    )
    hosts = [pool.spec.host_template(node_id, "OUT") for node_id in (0, 1)]
    assert hosts == ["b{nodeId}.example.com", "special"]
    assert (pool.spec.host_template(0, "IN"), pool.spec.interim_template("IN")) == (None, None)
    assert pool.spec.interim_template("OUT") == "i{nodeId}"
    assert (pool.spec.rack_of(1), pool.spec.rack_of(0)) == ("east", None)


def test_nodes_may_share_a_host_where_each_has_a_port() -> None:
    pool = brokers("listeners: [{name: A, advertisedHost: gate.example.com, exposure: {type: NodePort}}]")
    assert pool.spec.listeners[0].advertised_host == "gate.example.com"


def test_entries_for_nodes_that_are_not_there_wait() -> None:
    """`kubectl scale` down is not refused for an entry in nodes."""
    assert controllers("replicas: 1, nodes: [{nodeId: 3002}]").spec.all_node_ids() == (3000,)


def test_an_object_of_the_api_server_is_read() -> None:
    body = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaController",
        "metadata": {
            "name": "quorum",
            "namespace": "ns",
            "uid": "u",
            "generation": 3,
            "resourceVersion": "1",
            "managedFields": [{}],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"replicas": 1},
        "status": {"anything": 1},
    }
    quorum = load_object(body, "ns/quorum")
    assert isinstance(quorum, KafkaController)
    assert (quorum.metadata.uid, quorum.metadata.generation, quorum.spec.replicas) == ("u", 3, 1)
    assert joined(quorum, (), "ns/quorum").brokers == ()
    with pytest.raises(ManifestError, match=r"^ns/quorum: KafkaController quorum: spec.replicas: 0: must be"):
        load_object({**body, "spec": {"replicas": 0}}, "ns/quorum")
    with pytest.raises(ManifestError, match=r"^here: metadata: missing; it must be given$"):
        load_object({"kind": "KafkaController"}, "here")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0s", 0), ("250ms", 250), ("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("10Gi", 10 * 2**30), ("1.5k", 1500), ("2T", 2 * 10**12), ("512Mi", 2**29)]
)
def test_quantities(text: str, size: int) -> None:
    assert quantity_bytes(text) == size
