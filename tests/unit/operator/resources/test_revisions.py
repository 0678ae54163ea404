"""What restarts a node: the parts of its revision, and what changes none of them."""

from dataclasses import replace

import pytest
from kit.desired_cluster import FORMATION, Make, changed_parts
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import DesiredNode, NodeState, ObservedNode, Role
from quorate_operator.planning.rollout import changes
from quorate_operator.properties import internal_topic_properties
from quorate_operator.resources.facts import Images

TLS = "listeners: [{name: A, protocol: SSL, tls: {secretName: cert}}]"


@pytest.mark.parametrize(
    ("brokers", "parts"),
    [
        ("config: {num.io.threads: 4}", {"config"}),
        ("version: 4.3.1", {"version", "image"}),
        ("image: 'registry.example.com/kafka:1'", {"image"}),
        ("template: {resources: {requests: {cpu: 1}}}", {"resources"}),
        ("template: {resources: {limits: {memory: 2Gi}}}", {"resources", "pod"}),
        ("template: {labels: {a: b}}", {"pod"}),
        ("template: {nodeSelector: {disk: fast}}", {"pod"}),
        ("template: {env: [{name: A, value: b}]}", {"pod"}),
        ("template: {volumes: [{name: a, emptyDir: {}}]}", {"pod"}),
        ("template: {sidecars: [{name: a, image: 'a:1'}]}", {"pod"}),
        ("template: {probes: {liveness: {failureThreshold: 9}}}", {"pod"}),
        ("template: {probes: {startup: {failureThreshold: 43200}}}", set()),
        ("template: {serviceAccountName: kafka}", {"pod"}),
        ("template: {securityContext: {}}", {"pod"}),
        ("template: {terminationGracePeriodSeconds: 300}", {"pod"}),
        ("nodes: [{nodeId: 0, rack: east}]", {"config"}),
        ("nodes: [{nodeId: 1, rack: east}]", set()),
        ("rack: {topologyKey: topology.kubernetes.io/zone}", {"config", "pod"}),
        ("replicas: 5", set()),
        ("replicas: 2", {"copies"}),
        ("replicas: 1", {"copies"}),
        ("decommission: [2]", set()),
        ("storage: {size: 20Gi}", set()),
        ("rollout: {overlap: 1h}", set()),
        ("listeners: [{name: PLAINTEXT, advertisedHost: 'b{nodeId}.kafka.svc'}]", set()),
        ("listeners: [{name: PLAINTEXT, port: 9192}]", {"config", "pod"}),
    ],
)
def test_a_broker_is_restarted_for_what_it_can_not_change_while_it_runs(
    make: Make, brokers: str, parts: set[str]
) -> None:
    assert changed_parts(make().node(0), make(brokers=brokers).node(0)) == parts


def test_brokers_that_come_restart_none_and_brokers_that_leave_only_for_their_copies(make: Make) -> None:
    names = internal_topic_properties(1)
    config = f"config: {{{', '.join(f'{name}: 1' for name in names)}}}"

    def differences(before: str, after: str) -> tuple[str, ...]:
        running = make(brokers=before).node(0)
        seen = ObservedNode(node_id=0, role=Role.BROKER, state=NodeState.READY, revision=running.revision)
        return changes(make(brokers=after).node(0), seen)

    assert differences("replicas: 2", "replicas: 3") == ()
    assert differences("replicas: 3", "replicas: 2") == ("copies: 3 -> 2",)
    assert differences("replicas: 4", "replicas: 3") == ()
    assert differences(f"replicas: 3, {config}", f"replicas: 1, {config}") == ()


@pytest.mark.parametrize(
    ("controllers", "parts"),
    [
        ("replicas: 5", set()),
        ("decommission: [3001]", set()),
        ("advertisedHost: 'c{nodeId}.kafka.svc'", set()),
        ("metadataVersion: '4.3'", set()),
        ("state: Paused", set()),
        ("quorum: static", {"config"}),
        ("config: {metadata.log.segment.bytes: 8388608}", {"config"}),
        ("nodes: [{nodeId: 3000, implementation: java}]", {"config", "image", "pod", "resources"}),
        ("template: {topologySpreadConstraints: [{topologyKey: rack}]}", {"pod"}),
    ],
)
def test_a_controller_is_restarted_for_what_it_can_not_change_while_it_runs(
    make: Make, controllers: str, parts: set[str]
) -> None:
    assert changed_parts(make().node(3000), make(controllers=controllers).node(3000)) == parts


def test_the_brokers_of_a_static_quorum_know_all_voters(make: Make) -> None:
    before, after = make("quorum: static").node(0), make("quorum: static, replicas: 5").node(0)
    assert changed_parts(before, after) == {"config"}


def test_a_certificate_that_changes_rolls_the_nodes(make: Make) -> None:
    with_keys = Secret(values={"tls.crt": "1", "tls.key": "1"})
    before = make(brokers=TLS, secrets={"cert": with_keys}).node(0)
    renewed = {"cert": Secret(values={"tls.crt": "2", "tls.key": "1"})}
    assert changed_parts(before, make(brokers=TLS, secrets=renewed).node(0)) == {"secrets"}
    others = {"cert": with_keys, "other": with_keys}
    assert changed_parts(before, make(brokers=TLS, secrets=others).node(0)) == set()
    trusting = {"cert": Secret(values={**with_keys.values, "ca.crt": "1"})}
    assert changed_parts(before, make(brokers=TLS, secrets=trusting).node(0)) == {"config", "pod", "secrets"}
    unused = {"cert": Secret(values={**with_keys.values, "keystore.p12": "1"})}
    assert changed_parts(before, make(brokers=TLS, secrets=unused).node(0)) == set()


@pytest.mark.parametrize(("implementation", "parts"), [("python", set()), ("java", {"secrets"})])
def test_a_controller_that_follows_its_certificate_is_not_restarted(
    make: Make, implementation: str, parts: set[str]
) -> None:
    """Renewed certificates and other authorities restart no controller of Quorate, and Java's one by one."""
    listener = (
        "{name: SSL, protocol: SASL_SSL, tls: {secretName: cert}, sasl: {secretName: login, username: node}}"
    )
    nodes = f"nodes: [{{nodeId: 3000, implementation: {implementation}}}]"
    keys = dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "1")

    def revised(cert: dict[str, str], password: str = "secret") -> DesiredNode:
        secrets = {"cert": Secret(values=cert), "login": Secret(values={"node": password})}
        return make(controllers=f"listeners: [{listener}], {nodes}", secrets=secrets).node(3000)

    before = revised(keys)
    for key in keys:
        assert changed_parts(before, revised({**keys, key: "2"})) == parts
    assert changed_parts(before, revised(keys, "other")) == {"secrets", "login"}


def test_a_secret_that_is_missing_restarts_nobody(make: Make) -> None:
    trusting = {"cert": Secret(values=dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "1"))}
    before = make(brokers=TLS, secrets=trusting).node(0)
    gone = make(brokers=TLS, revisions={0: before.revision}).node(0)
    assert changed_parts(before, gone) == set()
    newer = make(brokers=f"image: 'other:1', {TLS}", revisions={0: before.revision}).node(0)
    assert changed_parts(before, newer) == {"image"}
    never_started = make(brokers=TLS).node(0)
    assert "secrets" not in never_started.revision


def test_what_forming_and_the_operators_image_change(make: Make) -> None:
    """A cluster does not roll because it was formed; a new image rolls controllers alone."""
    before = make()
    formed = make(formation=replace(FORMATION, is_formed=True))
    newer = make(images=Images(quorate="quorate:10"))
    for node_id, parts in ((3000, {"image"}), (0, set())):
        assert changed_parts(before.node(node_id), formed.node(node_id)) == set()
        assert changed_parts(before.node(node_id), newer.node(node_id)) == parts


def test_the_image_of_a_sidecar_restarts_its_node(make: Make) -> None:
    first, second = (
        make(brokers=f"template: {{sidecars: [{{name: a, image: 'a:{tag}'}}]}}") for tag in (1, 2)
    )
    assert changed_parts(first.node(0), second.node(0)) == {"pod"}
