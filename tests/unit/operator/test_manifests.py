"""Manifests: what is read from YAML, and the messages of faults."""

import re
from pathlib import Path

import pytest
from kit.desired_cluster import manifest_fault
from quorate.play import command
from quorate_operator.models.manifests import ManifestError, Manifests, load_manifests
from quorate_operator.models.v1alpha1 import KAFKA_VERSION

EXAMPLES = Path(__file__).parents[3] / "examples"
QUICKSTART = EXAMPLES / "quickstart.yaml"
PACKAGED_QUICKSTART = Path(command.__file__).with_name("quickstart.yaml")

CONTROLLERS = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata:
  name: quorum
spec:
  replicas: 3
"""
BROKERS = """\
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata:
  name: brokers
spec:
  controllers: quorum
"""


def with_spec(line: str) -> str:
    """The controllers' manifest with another line for `replicas: 3`."""
    return CONTROLLERS.replace("replicas: 3", line)


def load(text: str) -> Manifests:
    """The manifests in a text that must be accepted."""
    return load_manifests(text, "m.yaml")


def test_the_package_carries_the_quickstart() -> None:
    """`quorate play` works without -f, installed or not."""
    assert PACKAGED_QUICKSTART.read_text() == QUICKSTART.read_text()


def test_every_example_is_accepted() -> None:
    texts = {path: path.read_text() for path in EXAMPLES.rglob("*.yaml")}
    clusters = {path: text for path, text in texts.items() if "kind: KafkaController\n" in text}
    assert clusters
    for path, text in clusters.items():
        try:
            load_manifests(text, path.name)
        except ManifestError as error:
            raise AssertionError(f"{path}: {error}") from error


def test_prose_about_an_example_has_the_level_that_it_sets() -> None:
    """In its own comment, and beside the command in docs/play.md."""
    announced = re.compile(r"^#.*metadata\.version (?:stays at )?(\d\.\d)", re.MULTILINE)
    beside = re.compile(r"-f (examples/\S+)\s+# metadata\.version (\d\.\d)")
    root = EXAMPLES.parent
    found = [
        *(
            (path, level)
            for path in EXAMPLES.rglob("*.yaml")
            for level in announced.findall(path.read_text())
        ),
        *((root / name, level) for name, level in beside.findall((root / "docs" / "play.md").read_text())),
    ]
    assert {path.name for path, _ in found} >= {"5-upgrade.yaml", "1-software.yaml"}
    assert [path for path, level in found if f'metadataVersion: "{level}"' not in path.read_text()] == []


def test_the_quickstart_is_three_controllers_and_a_broker() -> None:
    manifests = load_manifests(QUICKSTART.read_text(), "quickstart.yaml")
    assert list(manifests.controllers.spec.all_node_ids()) == [3000, 3001, 3002]
    assert [list(pool.spec.all_node_ids()) for pool in manifests.brokers] == [[0]]
    assert {manifests.controllers.spec.implementation_of(node_id) for node_id in range(3000, 3003)} == {
        "python"
    }


def test_defaults_fill_what_is_left_out() -> None:
    manifests = load(CONTROLLERS.replace("spec:\n  replicas: 3\n", "") + BROKERS)
    spec = manifests.controllers.spec
    assert (spec.replicas, spec.quorum, spec.listeners[0].name, spec.cluster_id) == (
        3,
        "dynamic",
        "CONTROLLER",
        None,
    )
    (pool,) = manifests.brokers
    assert (pool.spec.replicas, pool.spec.version, pool.spec.listeners[0].name) == (
        3,
        KAFKA_VERSION,
        "PLAINTEXT",
    )


def test_empty_documents_are_skipped() -> None:
    assert load(f"---\n{CONTROLLERS}\n---\n").brokers == ()


def test_property_values_become_what_kafka_reads() -> None:
    config = load(
        with_spec(
            "config: {num.io.threads: 3, log.preallocate: true, log.cleaner.min.cleanable.ratio: 0.5, broker.rack: x}"
        )
    ).controllers.spec.config
    assert tuple(config.values()) == ("3", "true", "0.5", "x")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("replicas: 0", "spec.replicas: 0: must be greater than or equal to 1"),
        ("replicas: 10", "spec.replicas: 10: must be less than or equal to 9"),
        ("replicas: '3'", "spec.replicas: '3': must be a valid integer"),
        ("replicas: true", "spec.replicas: true: must be a valid integer"),
        ("replcias: 3", "spec.replcias: unknown field; did you mean replicas? allowed: replicas, nodeIds, "),
        ("metadataVersion: 4.3", "spec.metadataVersion: 4.3: must be text; put it in quotes"),
        ("metadataVersion: latest", "spec.metadataVersion: 'latest': must match pattern"),
        ("clusterId: abc", "spec.clusterId: 'abc': must be a UUID as Kafka prints it"),
        ("quorum: elastic", "spec.quorum: 'elastic': must be 'dynamic' or 'static'"),
        ("config: {node.id: 3}", "spec.config.node.id: 'node.id': is derived from the rest of the manifest"),
        ("config: {advertised.host: x}", "spec.config.advertised.host: 'advertised.host': is derived"),
        ("config: {'a b': x}", "spec.config.a b: 'a b': must be a Kafka property name"),
        ("config: {a: [1]}", "spec.config.a: [1]: must be a valid string"),
        (
            "listeners: [{name: C, port: 70000}]",
            "spec.listeners[0].port: 70000: must be less than or equal to 65535",
        ),
        (
            "listeners: [{nam: C}]",
            "spec.listeners[0].nam: unknown field; did you mean name? allowed: name, port, ",
        ),
        ("listeners: []", "spec.listeners: []: "),
        (
            "nodeIds: {first: 2147483646}",
            "spec.nodeIds.first: 2147483646: the ids go up to 2147483648, and 2147483647 is the last",
        ),
        ("nodes: [{nodeId: 1}]", "spec.nodes: 1 is not a node id of this pool, which has 3000 to 3099"),
        ("nodes: [{nodeId: 3000}, {nodeId: 3000}]", "spec.nodes: 3000 is listed more than once"),
        ("nodes: [{nodeId: 3000, implementation: go}]", "implementation: 'go': must be 'python' or 'java'"),
    ],
)
def test_faults_name_the_field_the_value_and_what_is_allowed(line: str, fault: str) -> None:
    """A user can repair a manifest from the message alone."""
    said = manifest_fault(with_spec(line))
    assert said.startswith("m.yaml: document 1: KafkaController quorum: ")
    assert fault in said
    assert len(said.splitlines()) == 1 or "listeners" in line


def test_every_fault_is_told_at_once() -> None:
    said = manifest_fault(with_spec("replicas: 0\n  quorum: x"))
    assert ["spec.replicas" in said, "spec.quorum" in said] == [True, True]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "one KafkaController is needed, found 0 (none)"),
        (f"{CONTROLLERS}---\n{CONTROLLERS}", "one KafkaController is needed, found 2 (quorum, quorum)"),
        ("- 1", "document 1: must be a mapping with apiVersion, kind, metadata and spec"),
        (
            CONTROLLERS.replace("KafkaController", "Kafka"),
            "kind: 'Kafka': must be one of KafkaBroker, KafkaController",
        ),
        (CONTROLLERS.replace("v1alpha1", "v1"), "apiVersion: 'quorate.dev/v1': must be quorate.dev/v1alpha1"),
        (
            CONTROLLERS.replace("metadata:\n  name: quorum\n", ""),
            "KafkaController: metadata: missing; it must be given",
        ),
        (CONTROLLERS.replace("quorum", "Quorum"), "metadata.name: 'Quorum': must match pattern"),
        ("a: [", "m.yaml: can't be read as YAML: "),
        ("a: 2024-13-01", "m.yaml: can't be read as YAML: month must be in 1..12"),
        ('a: "\\UFFFFFFFF"', "m.yaml: can't be read as YAML: "),
        ("a: !!bool x", "m.yaml: can't be read as YAML: "),
        (f"{CONTROLLERS}  replicas: 5\n", "the key 'replicas' is given twice in \"m.yaml\", line 7"),
        (
            CONTROLLERS + BROKERS.replace("controllers: quorum", "controllers: other"),
            "'other': no such KafkaController",
        ),
        (CONTROLLERS + BROKERS + BROKERS, "KafkaBroker brokers: metadata.name: there are two of this name"),
        (
            CONTROLLERS + f"{BROKERS}  nodeIds: {{first: 2999}}\n",
            "node id 3000 belongs to KafkaController quorum already",
        ),
        (
            CONTROLLERS + f"{BROKERS}  listeners: [{{name: A}}, {{name: CONTROLLER}}]\n",
            "KafkaBroker brokers: spec.listeners[1].name: 'CONTROLLER': is the controllers' listener",
        ),
        (
            CONTROLLERS + f"{BROKERS}  listeners: [{{name: A}}, {{name: A}}]\n",
            "KafkaBroker brokers: spec.listeners: each name may appear once, got A, A",
        ),
    ],
)
def test_faults_between_and_around_documents(text: str, fault: str) -> None:
    assert fault in manifest_fault(text)
