"""Ask a stock controller about configs and features, and record its responses for tests/golden.

Starts a controller from Kafka's jars on loopback, registers a broker that only the controller believes in,
and puts the questions below to it, in this order: later responses depend on earlier changes.

    python tools/capture_control_responses.py --jars ~/kafka-4.3.1/libs  # writes answers-4.3.1.json
    python tools/capture_control_responses.py --jars ~/kafka-4.4.0/libs
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from generated import version_of
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.kafka.generated import broker_registration_request as registration
from quorate_protocol.kafka.generated import create_topics_request as create_topics
from quorate_protocol.kafka.generated import describe_configs_request as describe_configs
from quorate_protocol.kafka.generated import incremental_alter_configs_request as alter_configs
from quorate_protocol.kafka.generated import update_features_request as update_features
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.releases import RELEASES, Release
from quorate_protocol.properties import format_properties
from quorate_protocol.wire.client import ClientConnection

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden" / "control"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NODE_ID = 3000
JAVA_OPTIONS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PROPERTIES = {"log.retention.hours": "72", "num.partitions": "2", "min.insync.replicas": "1"}

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

TOPIC_CONFIGS: list[dict[str, str]] = [
    {},
    {"retention.ms": "100", "cleanup.policy": "compact, delete"},
    {"retention.ms": " 5 "},
    {"retention.ms": "+5"},
    {"min.cleanable.dirty.ratio": "0.50", "unclean.leader.election.enable": " TRUE "},
    {"leader.replication.throttled.replicas": "*"},
    {"internal.segment.bytes": "100"},
    {"cleanup.policy": ""},
    {"cleanup.policy": "compact,compact"},
    {"unknown": "1"},
    {"retention.ms": "x"},
    {"retention.ms": ""},
    {"retention.ms": "-7"},
    {"cleanup.policy": "compact,unknown"},
    {"cleanup.policy": ","},
    {"compression.type": "zip"},
    {"compression.gzip.level": "0"},
    {"compression.lz4.level": "18"},
    {"min.insync.replicas": "0"},
    {"segment.bytes": "10"},
    {"segment.bytes": "99999999999"},
    {"unclean.leader.election.enable": "yes"},
    {"message.timestamp.type": "x"},
    {"leader.replication.throttled.replicas": "1:2,3"},
    {"remote.storage.enable": "true"},
    {"min.cleanable.dirty.ratio": "1.5"},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    {"errors.deadletterqueue.group.enable": "true"},
    {"max.decompressed.message.bytes": "5"},
    {"max.decompressed.message.bytes": "0"},
    {"max.decompressed.message.bytes": "2147483640"},
    {"remote.copy.lag.ms": "5", "remote.copy.lag.bytes": "7"},
    {"remote.copy.lag.ms": "-2"},
    {"remote.storage.enable": "true", "local.retention.ms": "3", "remote.copy.lag.ms": "5"},
]
TIERED = {"remote.log.storage.system.enable": "true"}
TIERED_TOPIC_CONFIGS: list[dict[str, str]] = [
    {"remote.storage.enable": "true"},
    *(
        {"remote.storage.enable": "true", **configs}
        for configs in (
            {"cleanup.policy": "compact"},
            {"local.retention.ms": "9", "retention.ms": "8"},
            {"local.retention.bytes": "9", "retention.bytes": "8"},
            {"local.retention.ms": "-1", "retention.ms": "8"},
            {"local.retention.ms": "-1", "retention.ms": "-1", "remote.log.copy.disable": "true"},
            {"local.retention.ms": "7", "retention.ms": "8", "remote.log.copy.disable": "true"},
            {"local.retention.bytes": "7", "remote.log.copy.disable": "true"},
            {
                "local.retention.bytes": "7",
                "local.retention.ms": "9",
                "retention.ms": "8",
                "remote.log.copy.disable": "true",
            },
            {"local.retention.ms": "3", "remote.copy.lag.ms": "3"},
            {"local.retention.ms": "3", "remote.copy.lag.ms": "4"},
            {"retention.ms": "3", "remote.copy.lag.ms": "4"},
            {"retention.ms": "-1", "remote.copy.lag.ms": "4"},
            {"local.retention.bytes": "3", "remote.copy.lag.bytes": "4"},
            {"retention.bytes": "3", "remote.copy.lag.bytes": "4", "remote.copy.lag.ms": "9999999999"},
            {"local.retention.bytes": "3", "remote.copy.lag.bytes": "4", "remote.log.copy.disable": "true"},
            {"remote.copy.lag.bytes": "4"},
        )
    ),
]
"""Asked of a controller with tiered storage."""
ALTERATIONS: list[tuple[int, str, list[tuple[str, int, str | None]]]] = [
    (TOPIC, "t0", [("retention.ms", SET, "7")]),
    (TOPIC, "t0", [("retention.ms", SET, "x")]),
    (TOPIC, "t0", [("unknown", SET, "1")]),
    (TOPIC, "t0", [("unknown", DELETE, None)]),
    (TOPIC, "t0", [("cleanup.policy", APPEND, "compact")]),
    (TOPIC, "t0", [("cleanup.policy", SUBTRACT, "delete")]),
    (TOPIC, "t0", [("retention.ms", APPEND, "1")]),
    (TOPIC, "absent", [("retention.ms", SET, "7")]),
    (TOPIC, "", [("retention.ms", SET, "7")]),
    (TOPIC, "a b", [("retention.ms", SET, "7")]),
    (BROKER, "", [("min.insync.replicas", SET, "2")]),
    (BROKER, "", [("min.insync.replicas", DELETE, None)]),
    (BROKER, "1", [("min.insync.replicas", SET, "1")]),
    (BROKER, "77", [("log.cleaner.threads", SET, "1")]),
    (BROKER, "x", [("log.cleaner.threads", SET, "1")]),
    (BROKER, "-5", [("log.cleaner.threads", SET, "1")]),
    (BROKER, str(NODE_ID), [("log.cleaner.threads", SET, "2")]),
    (BROKER, "1", [("cordoned.log.dirs", SET, "/x")]),
    (BROKER, "", [("log.segment.bytes", SET, "2000000")]),
    (CLIENT_METRICS, "s", [("interval.ms", SET, "1000"), ("match", SET, "client_id=a.*")]),
    (CLIENT_METRICS, "s", [("interval.ms", SET, "10")]),
    (CLIENT_METRICS, "s", [("interval.ms", SET, "a")]),
    (CLIENT_METRICS, "s", [("unknown", SET, "10")]),
    (CLIENT_METRICS, "", [("interval.ms", SET, "1000")]),
    (CLIENT_METRICS, "s", [("match", SET, "x=y")]),
    (CLIENT_METRICS, "s", [("match", SET, "client_id")]),
    (CLIENT_METRICS, "s", [("match", APPEND, "client_software_name=a")]),
    (CLIENT_METRICS, "s", [("metrics", APPEND, "a")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "5")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "5000000")]),
    (GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "6000")]),
    (GROUP, "g", [("unknown", SET, "1")]),
    (GROUP, "", [("consumer.heartbeat.interval.ms", SET, "6000")]),
    (GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:PT1H")]),
    (GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:-PT1H")]),
    (GROUP, "g", [("share.isolation.level", SET, "x")]),
    (GROUP, "g", [("streams.num.standby.replicas", SET, "9")]),
    (GROUP, "g", [("share.record.lock.duration.ms", SET, "999999")]),
    (GROUP, "g", [("share.record.lock.duration.ms", SET, "-5")]),
    (
        GROUP,
        "g",
        [("consumer.heartbeat.interval.ms", SET, "45000"), ("consumer.session.timeout.ms", DELETE, "")],
    ),
    (GROUP, "g", [("streams.session.timeout.ms", SET, "5000000"), ("consumer.session.timeout.ms", SET, "5")]),
    (GROUP, "g", [("errors.deadletterqueue.topic.name", SET, "__dead")]),
    (GROUP, "g", [("errors.deadletterqueue.topic.name", SET, " dead letters ")]),
    (GROUP, "g", [("errors.deadletterqueue.topic.name", SET, "dlq.g")]),
    (GROUP, "g", [("errors.deadletterqueue.copy.record.enable", SET, "yes")]),
    (GROUP, "g", [("streams.assignor.name", SET, "sticky")]),
    (GROUP, "g", [("streams.assignor.name", SET, "highly_available")]),
    (GROUP, "g", [("streams.assignor.name", SET, "")]),
    (GROUP, "g", [("streams.rack.aware.assignment.tags", SET, "zone,cluster")]),
    (GROUP, "g", [("streams.rack.aware.assignment.tags", APPEND, "zone")]),
    (GROUP, "g", [("streams.rack.aware.assignment.tags", SET, "zone, zone")]),
    (GROUP, "g", [("streams.rack.aware.assignment.tags", SET, "zone,,rack")]),
    (GROUP, "g", [("streams.rack.aware.assignment.tags", SET, ",")]),
    (GROUP, "g", [("streams.rack.aware.assignment.tags", SET, "")]),
    (GROUP, "g", [("streams.task.offset.interval.ms", SET, "14999")]),
    (GROUP, "g", [("streams.task.offset.interval.ms", SET, "20000")]),
    (GROUP, "g", [("streams.num.warmup.replicas", SET, "21")]),
    (GROUP, "g", [("streams.num.warmup.replicas", SET, "-1")]),
    (GROUP, "g", [("streams.acceptable.recovery.lag", SET, "-1")]),
    (GROUP, "g", [("share.assignor.offload.enable", SET, "false")]),
    (BROKER, "", [("log.remote.copy.lag.ms", SET, "9")]),
    (BROKER, "", [("errors.deadletterqueue.topic.name.prefix", SET, "d.")]),
    (5, "x", [("a", SET, "1")]),
    # unknown types; an unknown operation makes a stock controller resign
    *((number, "x", [("a", SET, "1")]) for number in (0, 3, 99, 127, -1)),
]
DESCRIPTIONS = [
    (TOPIC, "t0"),
    (TOPIC, "t1"),
    (BROKER, str(NODE_ID)),
    (BROKER, ""),
    (BROKER, "1"),
    (BROKER, "x"),
    (CLIENT_METRICS, "s"),
    (CLIENT_METRICS, "unset"),
    (CLIENT_METRICS, ""),
    (GROUP, "g"),
    (GROUP, "unset"),
    (GROUP, ""),
    (8, ""),
    (8, "1"),
    # unknown types
    (0, ""),
    (0, "x"),
    (3, "x"),
    (99, ""),
    (127, "x"),
    (-1, "x"),
]


def feature_updates(latest: int) -> list[list[tuple[str, int, int]]]:
    """Changes of levels; `latest` is the highest metadata.version that the release has for production."""
    return [
        [("unknown", 1, UPGRADE)],
        [("unknown", 0, SAFE_DOWNGRADE)],
        [("metadata.version", latest - 1, UPGRADE)],
        [("metadata.version", latest - 1, SAFE_DOWNGRADE)],
        [("metadata.version", latest - 1, UNSAFE_DOWNGRADE)],
        [("metadata.version", latest, UPGRADE)],
        [("metadata.version", latest + 1, UPGRADE)],
        [("group.version", 0, UPGRADE)],
        [("group.version", 0, SAFE_DOWNGRADE)],
        [("group.version", 1, SAFE_DOWNGRADE)],
        [("group.version", 1, UPGRADE)],
        [("group.version", 5, UPGRADE)],
        [("group.version", -1, UPGRADE)],
        [("group.version", 1, 0)],
        [("group.version", 1, 9)],
        [("kraft.version", 0, UPGRADE)],
        [("kraft.version", 0, SAFE_DOWNGRADE)],
        [("kraft.version", 1, UPGRADE)],
        [("kraft.version", 2, UPGRADE)],
        [("eligible.leader.replicas.version", 0, SAFE_DOWNGRADE)],
        [("eligible.leader.replicas.version", 1, UPGRADE)],
        [("share.version", 2, UPGRADE)],
        [("share.version", 1, SAFE_DOWNGRADE)],
        [("transaction.version", 1, SAFE_DOWNGRADE), ("share.version", 0, SAFE_DOWNGRADE)],
    ]


class Controller:
    """A blocking connection to the controller."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._connection = ClientConnection("capture")

    def ask(self, request: object) -> Any:
        """Send a request in its newest version; wait for the response."""
        self._socket.sendall(self._connection.send(request, api_of(request).version_max))
        responses: list[tuple[int, Any]] = []
        while not responses:
            responses = self._connection.receive_data(self._socket.recv(1 << 20))
        return responses[0][1]


@contextmanager
def running_controller(jars: Path, release: Release, settings: Mapping[str, str]) -> Iterator[Controller]:
    """Format and start a controller in a temporary directory; stop it in the end."""
    with tempfile.TemporaryDirectory() as directory, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
        probe.close()
        listener = f"{address[0]}:{address[1]}"
        properties = {
            "process.roles": "controller",
            "node.id": str(NODE_ID),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{listener}",
            "controller.quorum.bootstrap.servers": listener,
            "log.dirs": f"{directory}/data",
            **settings,
        }
        path = Path(directory) / "controller.properties"
        path.write_text(format_properties(properties))
        java = ("java", *JAVA_OPTIONS, "-cp", str(jars / "*"))
        format_options = ("--standalone", "--cluster-id", CLUSTER_ID, "--config", str(path))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run((*java, "kafka.tools.StorageTool", "format", *format_options), check=True, **quiet)
        with subprocess.Popen((*java, "kafka.Kafka", str(path)), **quiet) as process:
            try:
                yield connect(address, release)
            finally:
                process.terminate()


def connect(address: tuple[str, int], release: Release) -> Controller:
    """Wait until the controller listens and is active."""
    for _ in range(120):
        time.sleep(0.5)
        try:
            controller = Controller(address)
            if register_broker(controller, release):
                return controller
        except OSError:
            continue
    raise TimeoutError(f"no controller became active at {address}")


def register_broker(controller: Controller, release: Release) -> bool:
    """Register and unfence broker 1, which has the release's levels; False while the controller is not active."""
    levels = {name: (0, level) for name, level in release.feature_levels.items()}
    response = controller.ask(
        registration.BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=1 << 64),
            listeners=(
                registration.Listener(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0),
            ),
            features=tuple(
                registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in (
                    levels | {"metadata.version": (7, release.metadata_version)}
                ).items()
            ),
            rack=None,
            log_dirs=(UUID(int=1 << 65),),
        )
    )
    if response.error_code:
        return False
    heartbeat = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=response.broker_epoch,
        current_metadata_offset=response.broker_epoch,
        want_fence=False,
        want_shut_down=False,
    )
    return not controller.ask(heartbeat).is_fenced


def result_fields(result: Any) -> dict[str, Any]:
    """The fields of every result."""
    return {"error_code": int(result.error_code), "error_message": result.error_message}


def ask_topic(controller: Controller, name: str, configs: Mapping[str, str]) -> dict[str, Any]:
    """Create a topic with these configs."""
    topic = create_topics.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
        ),
    )
    request = create_topics.CreateTopicsRequest(
        topics=(topic,), timeout=timedelta(seconds=10), validate_only=False
    )
    (result,) = controller.ask(request).topics
    effective = [[config.name, config.value, config.config_source] for config in result.configs or ()]
    return {
        "name": name,
        "configs": configs,
        **result_fields(result),
        "effective": sorted(effective),
    }


def ask_alteration(
    controller: Controller, resource_type: int, name: str, operations: Sequence[tuple[str, int, str | None]]
) -> dict[str, Any]:
    """Alter configs of one resource."""
    resource = alter_configs.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ),
    )
    request = alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (response,) = controller.ask(request).responses
    return {
        "resource": [resource_type, name],
        "operations": operations,
        **result_fields(response),
    }


def ask_description(controller: Controller, resource_type: int, name: str) -> dict[str, Any]:
    """Describe all configs of one resource, with synonyms."""
    resource = describe_configs.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    (result,) = controller.ask(request).results
    configs = [
        [
            config.name,
            config.value,
            config.config_source,
            config.config_type,
            config.read_only,
            config.is_sensitive,
            [[synonym.name, synonym.value, synonym.source] for synonym in config.synonyms],
        ]
        for config in sorted(result.configs, key=lambda config: config.name)
    ]
    # The node's own properties name a directory and a port that are others each time.
    return {
        "resource": [resource_type, name],
        **result_fields(result),
        "configs": [config for config in configs if not is_of_this_run(config)],
    }


def is_of_this_run(config: Sequence[Any]) -> bool:
    """Whether a described config has a value of this run's directory or address."""
    return config[0] in {"log.dirs", "listeners", "controller.quorum.bootstrap.servers"}


def ask_features(controller: Controller, updates: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    """Update features."""
    request = update_features.UpdateFeaturesRequest(
        timeout=timedelta(seconds=10),
        feature_updates=tuple(
            update_features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level, upgrade_type in updates
        ),
    )
    response = controller.ask(request)
    return {"updates": updates, **result_fields(response)}


def render(responses: Mapping[str, Any]) -> str:
    """JSON with one response per line."""
    sections = []
    for name, values in responses.items():
        if isinstance(values, list):
            lines = ",\n".join(json.dumps(value) for value in values)
            sections.append(f"{json.dumps(name)}: [\n{lines}\n]")
        else:
            sections.append(f"{json.dumps(name)}: {json.dumps(values)}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    """Capture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jars", type=Path, required=True, help="directory with Kafka's jars (libs/)")
    jars = parser.parse_args().jars
    release = RELEASES[version_of(jars)]
    with running_controller(jars, release, PROPERTIES) as controller:
        responses = {
            "properties": PROPERTIES,
            "topics": [
                ask_topic(controller, f"t{number}", configs) for number, configs in enumerate(TOPIC_CONFIGS)
            ],
            "alterations": [ask_alteration(controller, *alteration) for alteration in ALTERATIONS],
            "descriptions": [ask_description(controller, *resource) for resource in DESCRIPTIONS],
            "features": [
                ask_features(controller, updates) for updates in feature_updates(release.metadata_version)
            ],
        }
    with running_controller(jars, release, PROPERTIES | TIERED) as controller:
        responses["tiered"] = [
            ask_topic(controller, f"t{number}", configs)
            for number, configs in enumerate(TIERED_TOPIC_CONFIGS)
        ]
    (FOLDER / f"answers-{release.version}.json").write_text(render(responses))


if __name__ == "__main__":
    main()
