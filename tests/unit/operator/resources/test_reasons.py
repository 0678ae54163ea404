"""The reasons of restarts, from manifests and from the annotation of the pod that runs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.desired_cluster import Cluster, Make
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import NodeState, ObservedNode, Role
from quorate_operator.planning.differences import differences, rendering_of
from quorate_operator.planning.rollout import changes
from quorate_operator.renderings import rendered_pod, rendered_properties
from quorate_operator.resources.names import ANNOTATION_RENDERING, ANNOTATION_REVISION
from quorate_operator.resources.pods import node_pod

TLS = "listeners: [{name: A, protocol: SSL, tls: {secretName: cert}}]"
SECRET = "kept-secret"


def annotations(cluster: Cluster, node_id: int) -> dict[str, str]:
    """The annotations of a node's pod."""
    pod = node_pod(cluster.context, cluster.desired, cluster.node(node_id), {}, is_initial=False)
    written: dict[str, str] = pod["metadata"]["annotations"]
    return written


def reasons(before: Cluster, after: Cluster, node_id: int = 0) -> tuple[str, ...]:
    """Why a node is restarted that runs with the one, as its pod says, when the other is desired."""
    written = annotations(before, node_id)
    role = Role.BROKER if node_id < 3000 else Role.CONTROLLER
    seen = ObservedNode(
        node_id=node_id,
        role=role,
        state=NodeState.READY,
        revision=json.loads(written[ANNOTATION_REVISION]),
        rendering=rendering_of(json.loads(written[ANNOTATION_RENDERING])),
    )
    return changes(after.node(node_id), seen)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "config: {log.retention.ms: 604800000}",
            "config: {log.retention.ms: 86400000}",
            ("log.retention.ms: 604800000 -> 86400000",),
        ),
        ("", "config: {log.retention.ms: 1}", ("log.retention.ms: 1 added",)),
        ("config: {log.retention.ms: 1}", "", ("log.retention.ms: removed",)),
        ("image: 'a:1'", "image: 'a:2'", ("image: a:1 -> a:2",)),
        (
            "template: {resources: {limits: {memory: 2Gi}}}",
            "template: {resources: {limits: {memory: 4Gi}}}",
            (
                "template.resources.limits.memory: 2Gi -> 4Gi",
                "container.env.KAFKA_HEAP_OPTS: content changed",
            ),
        ),
        (
            "template: {nodeSelector: {disk: slow}}",
            "template: {nodeSelector: {disk: fast}}",
            ("template.nodeSelector.disk: slow -> fast",),
        ),
        (
            "template: {tolerations: [{key: a}]}",
            "template: {tolerations: [{key: b}]}",
            ("template.tolerations[0].key: a -> b",),
        ),
        (
            "template: {sidecars: [{name: a, image: 'a:1'}]}",
            "template: {sidecars: [{name: a, image: 'a:2'}]}",
            ("sidecars.a.image: a:1 -> a:2",),
        ),
        (
            "template: {annotations: {a: '1'}, labels: {l: x}}",
            "template: {annotations: {a: '2'}, labels: {l: y}}",
            ("template.annotations.a: 1 -> 2", "template.labels.l: x -> y"),
        ),
        ("", "template: {labels: {l: x}}", ("template.labels.l: x added",)),
        ("", "template: {nodeSelector: {disk: fast}}", ("template.nodeSelector.disk: fast added",)),
        (
            "",
            "template: {volumes: [{name: a, emptyDir: {}}]}",
            ("pod.volumes.a: added",),
        ),
    ],
)
def test_a_reason_names_the_field_from_and_to(
    make: Make, before: str, after: str, expected: tuple[str, ...]
) -> None:
    """A user finds the line that restarts a broker."""
    assert reasons(make(brokers=before), make(brokers=after)) == expected


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (f"config: {{ssl.key.password: {SECRET}%s}}", "ssl.key.password"),
        (
            f"config: {{listener.name.plaintext.ssl.keystore.password: {SECRET}%s}}",
            "listener.name.plaintext.ssl.keystore.password",
        ),
        (f"customConfigKeys: [my.*], config: {{my.plugin.token: {SECRET}%s}}", "my.plugin.token"),
        (f"template: {{env: [{{name: A, value: {SECRET}%s}}]}}", "container.env.A"),
        (
            f"template: {{sidecars: [{{name: s, image: i, env: [{{name: A, value: {SECRET}%s}}]}}]}}",
            "sidecars.s.env.A",
        ),
        (f"template: {{sidecars: [{{name: s, image: i, args: [{SECRET}%s]}}]}}", "sidecars.s.args[0]"),
        (
            f"template: {{volumes: [{{name: v, csi: {{driver: d, volumeAttributes: {{k: {SECRET}%s}}}}}}]}}",
            "pod.volumes.v",
        ),
    ],
)
def test_what_may_be_secret_is_named_without_its_value(make: Make, spec: str, name: str) -> None:
    before, after = (make(brokers=spec % place) for place in (1, 2))
    assert reasons(before, after) == (f"{name}: content changed",)
    for cluster in (before, after):
        assert SECRET not in annotations(cluster, 0)[ANNOTATION_RENDERING]


def test_a_changed_secret_is_named_by_its_name(make: Make) -> None:
    listeners = (
        "listeners: [{name: A, protocol: SSL, tls: {secretName: cert}}, "
        "{name: B, port: 9093, protocol: SSL, tls: {secretName: other}}]"
    )
    cert, other = (Secret(values={"tls.crt": f"{SECRET}-1", "tls.key": SECRET}) for _ in range(2))
    renewed = Secret(values={"tls.crt": f"{SECRET}-2", "tls.key": SECRET})
    before = make(brokers=listeners, secrets={"cert": cert, "other": other})
    after = make(brokers=listeners, secrets={"cert": renewed, "other": other})
    assert reasons(before, after) == ("Secret cert: content changed",)
    assert SECRET not in annotations(before, 0)[ANNOTATION_RENDERING]


def test_an_image_of_a_release_and_a_property_are_told_together(make: Make) -> None:
    names = [
        f"controller.quorum.{name}.ms" for name in ("fetch.timeout", "election.timeout", "request.timeout")
    ]
    names += [
        "metadata.max.idle.interval.ms",
        "metadata.log.max.snapshot.interval.ms",
        "metadata.log.segment.ms",
    ]
    config = ", ".join(f"{name}: 600000" for name in names)
    reported = reasons(make(), make(controllers=f"image: 'q:10', config: {{{config}}}"), 3000)
    assert reported[0] == "image: quorate:9 -> q:10"
    assert reported[1] == "controller.quorum.election.timeout.ms: 600000 added"
    assert reported[-1] == "and 3 more"


@given(name=st.text(min_size=1), secret=st.text(alphabet="0123456789abcdef", min_size=8))
def test_no_property_without_a_definition_is_shown(name: str, secret: str) -> None:
    reported = differences({}, rendered_properties({f"x.{name}": secret}))
    assert reported == (f"x.{name}: added",)


@given(
    st.recursive(
        st.just(SECRET),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3)
            | st.dictionaries(st.sampled_from(("name", "value", "key")), inner, min_size=1)
        ),
        max_leaves=8,
    ),
    st.sampled_from(("env", "command", "args", "envFrom", "lifecycle")),
)
def test_nothing_in_a_field_that_is_not_known_to_be_harmless_is_shown(content: object, field: str) -> None:
    """What Kubernetes or a manifest may add to a container stays hidden."""
    # A member's own name is shown: environment variables and volumes are named by it.
    spec = {"container": {field: [{"name": "a", "value": content}]}, "volumes": [{"name": "v", "x": content}]}
    rendered = rendered_pod(spec, {}, {})
    assert {f"container.{field}.a", "pod.volumes.v"} == rendered.keys()
    assert SECRET not in json.dumps(rendered)
