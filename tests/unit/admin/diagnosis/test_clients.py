"""Clients of the brokers: which start again at their bootstrap servers, and what is found about them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from quorate_admin.diagnosis import (
    BrokerSample,
    ClientFacts,
    Code,
    Commands,
    Examination,
    Finding,
    NodeKind,
    Rebootstraps,
    RegisteredNode,
    Severity,
    clients_of_pages,
    diagnose,
    judge_client,
)

PAGE, OTHER_PAGE = "http://b0:9404/metrics", "http://b1:9404/metrics"
YES, NO, UNKNOWN = Rebootstraps.YES, Rebootstraps.NO, Rebootstraps.UNKNOWN


def connected(
    name: str, version: str, count: float = 1, listener: str = "CLIENTS", processor: str = "0"
) -> BrokerSample:
    labels = {
        "client_software_name": name,
        "client_software_version": version,
        "listener": listener,
        "network_processor": processor,
    }
    return BrokerSample("kafka_server_socketservermetrics_connections", labels, count)


def open_connections(count: float, listener: str = "CLIENTS") -> BrokerSample:
    labels = {"listener": listener, "network_processor": "0"}
    return BrokerSample("kafka_server_socketservermetrics_connection_count", labels, count)


def requests(version: str, count: float, request: str = "ApiVersions") -> BrokerSample:
    labels = {"request": request, "version": version}
    return BrokerSample("kafka_network_requestmetrics_requests_total", labels, count)


def errors(error: str, count: float, request: str = "ApiVersions") -> BrokerSample:
    labels = {"request": request, "error": error}
    return BrokerSample("kafka_network_requestmetrics_errors_total", labels, count)


def found(clients: ClientFacts, brokers: Sequence[int] = (0,)) -> dict[Code, Finding]:
    """The findings about clients of a cluster with these brokers."""
    registered = {node_id: RegisteredNode(kind=NodeKind.BROKER, node_id=node_id) for node_id in brokers}
    facts = Examination(brokers=registered, clients=clients)
    findings = diagnose(facts, Commands(bootstrap="-b b:9092")).findings
    return {finding.code: finding for finding in findings if finding.code.startswith("clients-")}


@pytest.mark.parametrize(
    ("name", "version", "judgement"),
    [
        ("apache-kafka-java", "4.4.0", YES),
        ("apache-kafka-java", "4.0.0-SNAPSHOT", YES),
        ("apache-kafka-java", "10.0.0", YES),
        ("apache-kafka-java", "3.9.1", NO),  # it can, and does not by default
        ("apache-kafka-java", "2.8.2.redhat-00001", NO),
        ("apache-kafka-java", "7.9.0-ccs", NO),  # Confluent Platform 7.9 has the clients of 3.9
        ("apache-kafka-java", "8.0.0-ce", YES),
        ("apache-kafka-java", "unknown", UNKNOWN),
        ("librdkafka", "2.10.0", YES),
        ("librdkafka", "1.9.2", UNKNOWN),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", YES),
        ("confluent-kafka-python", "2.3.0-rdkafka-2.3.0", YES),
        ("some-binding", "0.36.2-librdkafka-2.12.1", YES),
        ("kgo", "v1.21.6", YES),
        ("kgo", "v1.7.0", NO),
        ("kgo", "unknown", UNKNOWN),
        ("sarama", "1.30.0", YES),
        ("sarama", "dev", YES),
        ("kafka-python", "3.0.12", NO),
        ("quorate", "0.1.0", YES),
        ("quorate-reader", "0.1.0", YES),
        ("unknown", "unknown", UNKNOWN),
        ("something-of-ours", "4.4.0", UNKNOWN),
    ],
)
def test_a_client_is_judged_by_its_name_and_release(name: str, version: str, judgement: Rebootstraps) -> None:
    assert judge_client(name, version)[0] is judgement


def test_a_reason_names_the_first_release_that_starts_again() -> None:
    assert "4.0" in judge_client("apache-kafka-java", "3.9.1")[1]
    assert "metadata.recovery.strategy" in judge_client("apache-kafka-java", "3.9.1")[1]
    assert "2.0" in judge_client("confluent-kafka-python", "1.9.2-rdkafka-1.9.2")[1]
    assert "sends no name" in judge_client("unknown", "unknown")[1]


def test_samples_of_all_brokers_and_processors_are_summed_up() -> None:
    facts = clients_of_pages(
        {
            PAGE: [
                connected("kgo", "v1.21.6", 2),
                connected("kgo", "v1.21.6", 1, processor="1"),
                connected("kgo", "v1.20.0", 0),  # it was there, and is gone
                connected("kgo", "v1.21.6", 4, listener="INSIDE"),
                requests("3", 2),
                requests("5", 1),
                requests("12", 9, "Metadata"),
                errors("NONE", 7),
                errors("REBOOTSTRAP_REQUIRED", 3),
                errors("REBOOTSTRAP_REQUIRED", 1, "Metadata"),
            ],
            OTHER_PAGE: [
                connected("kgo", "v1.21.6", 1),
                connected("apache-kafka-java", "4.4.0", 5),
                requests("5", 2),
            ],
        }
    )
    assert [
        (client.name, client.version, client.listener, client.connections) for client in facts.clients
    ] == [
        ("apache-kafka-java", "4.4.0", "CLIENTS", 5),
        ("kgo", "v1.21.6", "CLIENTS", 4),
        ("kgo", "v1.21.6", "INSIDE", 4),
    ]
    assert facts.api_versions == {3: 2, 5: 3}
    assert facts.misrouted == {PAGE: 3}
    assert (facts.examined, facts.problems) == ((PAGE, OTHER_PAGE), {})


def test_clients_that_start_again_are_no_finding() -> None:
    page = [connected("kgo", "v1.21.6"), requests("5", 1), errors("NONE", 1)]
    assert found(clients_of_pages({PAGE: page})) == {}


def test_clients_that_do_not_start_again_are_a_warning_with_what_to_do() -> None:
    page = [
        connected("apache-kafka-java", "3.7.0", 4),
        connected("kafka-python", "3.0.12", 2),
        connected("kgo", "v1.21.6", 8),
    ]
    (finding,) = found(clients_of_pages({PAGE: page})).values()
    assert (finding.code, finding.severity) == (Code.CLIENTS_DO_NOT_REBOOTSTRAP, Severity.WARNING)
    assert finding.count == 6
    assert finding.examples == ("apache-kafka-java 3.7.0 on CLIENTS", "kafka-python 3.0.12 on CLIENTS")
    assert "4.0" in finding.evidence
    assert "kgo" not in finding.evidence
    assert finding.advice is not None
    assert "overlap" in finding.advice
    assert finding.commands == (f"quorate doctor -b b:9092 --clients {PAGE}",)


def test_unknown_clients_are_a_note_and_healthy() -> None:
    facts = clients_of_pages({PAGE: [connected("unknown", "unknown", 3), connected("mine", "1.0")]})
    (finding,) = found(facts).values()
    assert (finding.code, finding.severity, finding.count) == (Code.CLIENTS_UNKNOWN, Severity.NOTE, 4)
    assert "brokers that fetch" in finding.evidence


def test_many_clients_are_named_in_part() -> None:
    page = [connected("apache-kafka-java", f"3.{minor}.0") for minor in range(8)]
    finding = found(clients_of_pages({PAGE: page}))[Code.CLIENTS_DO_NOT_REBOOTSTRAP]
    assert (finding.count, len(finding.examples)) == (8, 5)
    assert "and 3 more" in finding.evidence


def test_misrouted_connections_are_a_note_for_each_broker() -> None:
    facts = clients_of_pages({PAGE: [connected("kgo", "v1.21.6"), errors("REBOOTSTRAP_REQUIRED", 3)]})
    (finding,) = found(facts).values()
    assert (finding.code, finding.severity, finding.count) == (Code.CLIENTS_MISROUTED, Severity.NOTE, 3)
    assert f"{PAGE}: 3" in finding.evidence


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ([], "kafka_server_socketservermetrics_connection_count"),
        ([open_connections(2)], "kafka_server_socketservermetrics_connections"),
        ([open_connections(2), connected("kgo", "v1.21.6", 0)], None),
        ([open_connections(0)], None),
    ],
    ids=["no page of a broker", "an exporter without the rule", "a client that is gone", "no client yet"],
)
def test_a_page_without_clients_is_not_mistaken_for_a_broker_without(
    page: list[BrokerSample], reason: str | None
) -> None:
    facts = clients_of_pages({PAGE: page})
    if reason is None:
        assert (facts.examined, facts.problems, found(facts)) == ((PAGE,), {}, {})
    else:
        assert facts.examined == ()
        assert reason in facts.problems[PAGE]
        (finding,) = found(facts).values()
        assert (finding.code, finding.severity) == (Code.CLIENTS_NOT_EXAMINED, Severity.WARNING)
        assert reason in finding.evidence


def test_brokers_whose_metrics_were_not_read_are_no_health() -> None:
    facts = clients_of_pages({PAGE: [connected("kgo", "v1.21.6")]})
    (finding,) = found(facts, brokers=(0, 1, 2)).values()
    assert finding.code is Code.CLIENTS_NOT_EXAMINED
    assert finding.message == "Clients of 2 of 3 brokers were not examined"
    facts = replace(facts, problems={OTHER_PAGE: "connection refused"})
    (finding,) = found(facts, brokers=(0, 1)).values()
    assert f"{OTHER_PAGE}: connection refused" in finding.evidence


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_values_that_no_broker_has_count_nothing(value: float) -> None:
    facts = clients_of_pages({PAGE: [connected("kgo", "v1.21.6", value), requests("5", value)]})
    assert (facts.clients, facts.api_versions, facts.examined) == ((), {}, (PAGE,))


@pytest.mark.parametrize("version", ["", "x", "9" * 5_000, "-1"])
def test_versions_of_requests_that_are_none_are_left_out(version: str) -> None:
    assert clients_of_pages({PAGE: [open_connections(0), requests(version, 1)]}).api_versions == {}


def test_nothing_is_found_without_being_asked_for() -> None:
    assert [finding for finding in diagnose(Examination()).findings if "clients" in finding.code] == []
