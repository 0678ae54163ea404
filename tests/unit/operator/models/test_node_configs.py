"""The properties and releases of nodes in manifests: what Kafka does not have is refused before a node starts."""

import pytest
from kit.desired_cluster import manifest_fault
from quorate_operator.models.manifests import Manifests, load_manifests
from quorate_protocol.kafka.releases import NEWEST_RELEASE, RELEASES

CONTROLLERS = (
    "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}\nspec: {%s}\n---\n"
)
BROKERS = (
    "apiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\nmetadata: {name: brokers}\n"
    "spec: {controllers: quorum, %s}\n"
)
JAVA = "replicas: 1, nodes: [{nodeId: 3000, implementation: java}]"


def loaded(controllers: str = "", brokers: str = "") -> Manifests:
    """The manifests of a cluster that must be accepted."""
    return load_manifests(CONTROLLERS % controllers + BROKERS % brokers, "m.yaml")


def faults(spec: str) -> set[str]:
    """What is said about a quorum and about a pool with the same spec, from the field on."""
    return {
        manifest_fault(CONTROLLERS % controllers + BROKERS % brokers).partition(" spec.")[2]
        for controllers, brokers in ((spec, ""), ("", spec))
    }


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (
            "log.retnetion.ms: 60000",
            (
                f"log.retnetion.ms: '60000': there is no such property in Kafka {NEWEST_RELEASE}; did you mean "
                "log.retention.ms?"
            ),
        ),
        ("super.user: 'User:a'", "super.user: 'User:a': there is no such property in Kafka"),
        ("own.plugin.url: a", "remove it, or list it in customConfigKeys if a plug-in reads it"),
        ("sasl.jaas.confg: password", "sasl.jaas.confg: there is no such property"),
        ("log.retention.ms: 1 day", "log.retention.ms: '1 day': Not a number of type LONG"),
        ("num.io.threads: 0", "num.io.threads: '0': Value must be at least 1"),
        ("auto.create.topics.enable: ja", "'ja': Expected value to be either true or false"),
        ("compression.type: gzp", "compression.type: 'gzp': String must be one of: "),
        ("broker.id: 3", "broker.id: can't be set: node ids follow from nodeIds"),
        ("quorate.http.listener: 'a:1'", "quorate.http.listener: can't be set: "),
        ("security.inter.broker.protocol: SSL", "security.inter.broker.protocol: can't be set: "),
        (
            "num.io.thread: 3, log.retention.ms: x",
            (
                f"num.io.thread: '3': there is no such property in Kafka {NEWEST_RELEASE}; "
                "did you mean num.io.threads?; "
                "log.retention.ms: 'x': Not a number of type LONG"
            ),
        ),
    ],
)
def test_what_no_node_can_use_is_refused_with_its_value_and_the_nearest_name(config: str, fault: str) -> None:
    for said in faults(f"config: {{{config}}}"):
        assert said.startswith("config: ")
        assert fault in said


def test_names_for_a_listener_are_those_of_kafka_and_of_the_listener() -> None:
    prefix = "listeners: [{name: INTERNAL}], config: {listener.name"
    loaded(brokers=f"{prefix}.internal.max.connections: 5}}")
    loaded(brokers=f"{prefix}.controller.ssl.cipher.suites: a}}")
    loaded(brokers=f"{prefix}.internal.scram-sha-512.sasl.login.class: a}}")
    assert "did you mean listener.name.internal.max.connections?" in manifest_fault(
        CONTROLLERS % "" + BROKERS % f"{prefix}.internal.max.conections: 5}}"
    )
    for listener in ("extrenal", "INTERNAL"):
        assert manifest_fault(
            CONTROLLERS % "" + BROKERS % f"{prefix}.{listener}.max.connections: 5}}"
        ).endswith(
            f"spec.config: listener.name.{listener}.max.connections: {listener!r}: there is no such listener; there "
            "are controller, internal, in lower case"
        )


@pytest.mark.parametrize(
    "config",
    [
        "rsm.config.bucket: a, remote.log.storage.manager.class.name: a.B",
        "config.providers: env, config.providers.env.class: a.B, num.io.threads: '${env:THREADS}'",
        "metric.reporters: a.B",
        "allow.everyone.if.no.acl.found: 'true'",
        "unstable.api.versions.enable: 'true'",
    ],
)
def test_names_of_plug_ins_and_of_the_authorizer_are_known(config: str) -> None:
    loaded(brokers=f"config: {{{config}}}")


def test_names_of_other_plug_ins_are_listed() -> None:
    loaded(brokers="config: {a.b: 1, c.d.e: 2}, customConfigKeys: [a.b, c.*]")
    assert "config: a.bc: '1': there is no such" in manifest_fault(
        CONTROLLERS % "" + BROKERS % "config: {a.bc: 1}, customConfigKeys: [a.b]"
    )


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("num.io.threads: 0", "num.io.threads: '0': Value must be at least 1"),
        ("listener.name.internal.max.connections: many", "'many': Not a number of type INT"),
        ("broker.id: 3", "broker.id: can't be set"),
    ],
)
def test_names_that_kafka_has_are_not_those_of_plug_ins(config: str, fault: str) -> None:
    custom = "listeners: [{name: INTERNAL}], customConfigKeys: [num.*, listener.*, broker.*]"
    assert fault in manifest_fault(CONTROLLERS % "" + BROKERS % f"{custom}, config: {{{config}}}")


def test_quorates_controllers_would_not_start_with_names_of_plug_ins() -> None:
    config = "config: {a.b: 1}, customConfigKeys: [a.b]"
    loaded(controllers=f"{JAVA}, {config}")
    assert (
        "spec.customConfigKeys: 'a.b': is for quorums of Java controllers alone; controller 3000 is one of "
        "Quorate's, which do not start with unknown properties: remove it, or set implementation: java in nodes for "
        "each"
    ) in manifest_fault(CONTROLLERS % config + BROKERS % "")


def test_the_names_of_quorates_controllers_are_theirs_alone() -> None:
    config = "config: {quorate.responses.wait.for: none}"
    loaded(controllers=config)
    assert "quorate.responses.wait.for: 'none': there is no such property" in manifest_fault(
        CONTROLLERS % "" + BROKERS % config
    )


def test_a_name_that_a_later_release_introduced_is_refused() -> None:
    later = "log.remote.copy.lag.ms: 1000"
    loaded(brokers=f"version: 4.4.0, config: {{{later}}}")
    assert faults(f"version: 4.3.1, config: {{{later}}}") == {
        "config: log.remote.copy.lag.ms: Kafka has it from 4.4.0 on; version is 4.3.1"
    }


def test_only_supported_releases_are_accepted() -> None:
    releases = ", ".join(RELEASES)
    for release in RELEASES:
        loaded(f"version: {release}", f"version: {release}")
    for said in faults("version: 4.4.9"):
        assert said.startswith(f"version: '4.4.9': must be one of the supported releases {releases}")
    for said in faults("version: 4.99.0"):
        assert said.startswith(f"version: '4.99.0': must be one of the supported releases {releases}")


def test_an_image_may_have_another_release_of_a_supported_line() -> None:
    pool = loaded(brokers="version: 4.4.9, image: 'own/kafka:4.4.9'").brokers[0]
    assert pool.spec.version == "4.4.9"
    for spec in ("version: 4.4.9", "version: 4.5.0, image: 'own/kafka:4.5.0'"):
        assert "or another of 4.3, 4.4 with image" in manifest_fault(CONTROLLERS % "" + BROKERS % spec)
