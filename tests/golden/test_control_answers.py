"""Our answers about configs and features against stock Kafka's (tools/capture_control_responses.py).

All questions are put to one controller, in the order in which the stock one was asked. It answers as the newest
release does; an older one answers the same but for what the test leaves out.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kit.controller_parts import LoneQuorum, response_of
from kit.older_releases import is_later, reworded
from quorate_controller.control.api import ControlConfig, RequestContext
from quorate_controller.control.controller import QuorumController, default_bootstrap
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.generated import broker_registration_request as registration
from quorate_protocol.kafka.generated import create_topics_request as create_topics
from quorate_protocol.kafka.generated import describe_configs_request as describe_configs
from quorate_protocol.kafka.generated import incremental_alter_configs_request as alter_configs
from quorate_protocol.kafka.generated import update_features_request as update_features
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.releases import NEWEST_RELEASE, RELEASES, Release

ANSWERS = {
    release: json.loads((Path(__file__).parent / "control" / f"answers-{release}.json").read_text())
    for release in RELEASES
}
NODE_ID = 3000
SectionResponse = tuple[str, dict[str, Any], dict[str, Any]]
"""A section, a question with stock Kafka's answer, our answer."""
TIERED = {"remote.log.storage.system.enable": "true"}
RUN_DEPENDENT = {"log.dirs", "listeners", "controller.quorum.bootstrap.servers"}


class Asked:
    """A controller as the stock one was set up: one unfenced broker, the same properties."""

    def __init__(self, release: Release, settings: Mapping[str, str]) -> None:
        self.release = release
        properties = {
            "process.roles": "controller",
            "node.id": str(NODE_ID),
            "controller.listener.names": "CONTROLLER",
            **settings,
        }
        self.image = MetadataImage()
        config = ControlConfig(
            node_id=NODE_ID,
            cluster_id="c",
            static_configs=properties,
            bootstrap=default_bootstrap(release.metadata_version),
        )
        self.control = QuorumController(config, self.image, Random(0), LoneQuorum())
        self.replay(self.control.activate(0).records)
        self.start_broker()

    def replay(self, records: Any) -> None:
        if records:
            offset = self.image.end_offset
            self.image.replay_batch(records, base_offset=offset, epoch=1, timestamp_ms=0)
            self.control.observe(records, offset, 0)

    def ask(self, request: Any) -> Any:
        context = RequestContext(
            now_ms=0, next_offset=self.image.end_offset, api_version=type(request).__version__
        )
        result = self.control.decide(request, context)
        return response_of(result, self.replay)

    def start_broker(self) -> None:
        levels = {name: (0, level) for name, level in self.release.feature_levels.items()}
        levels["metadata.version"] = (7, self.release.metadata_version)
        response = self.ask(
            registration.BrokerRegistrationRequest(
                broker_id=1,
                cluster_id="c",
                incarnation_id=UUID(int=1 << 64),
                listeners=(),
                features=tuple(
                    registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in levels.items()
                ),
                rack=None,
                log_dirs=(UUID(int=1 << 65),),
            )
        )
        self.ask(
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=response.broker_epoch,
                current_metadata_offset=response.broker_epoch,
                want_fence=False,
                want_shut_down=False,
            )
        )


def ask_topic(asked: Asked, question: dict[str, Any]) -> dict[str, Any]:
    configs = tuple(
        create_topics.CreatableTopicConfig(name=key, value=value)
        for key, value in question["configs"].items()
    )
    topic = create_topics.CreatableTopic(
        name=question["name"], num_partitions=1, replication_factor=1, assignments=(), configs=configs
    )
    request = create_topics.CreateTopicsRequest(
        topics=(topic,), timeout=timedelta(seconds=1), validate_only=False
    )
    (result,) = asked.ask(request).topics
    effective = [[config.name, config.value, config.config_source] for config in result.configs or ()]
    return {
        "error_code": int(result.error_code),
        "error_message": result.error_message,
        "effective": sorted(effective),
    }


def ask_alteration(asked: Asked, question: dict[str, Any]) -> dict[str, Any]:
    resource_type, name = question["resource"]
    resource = alter_configs.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in question["operations"]
        ),
    )
    request = alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (response,) = asked.ask(request).responses
    return {"error_code": int(response.error_code), "error_message": response.error_message}


def ask_description(asked: Asked, question: dict[str, Any]) -> dict[str, Any]:
    resource_type, name = question["resource"]
    resource = describe_configs.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    (result,) = asked.ask(request).results
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
        if config.name not in RUN_DEPENDENT
    ]
    return {"error_code": int(result.error_code), "error_message": result.error_message, "configs": configs}


def ask_features(asked: Asked, question: dict[str, Any]) -> dict[str, Any]:
    request = update_features.UpdateFeaturesRequest(
        timeout=timedelta(seconds=1),
        feature_updates=tuple(
            update_features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level, upgrade_type in question["updates"]
        ),
    )
    response = asked.ask(request)
    return {"error_code": int(response.error_code), "error_message": response.error_message}


SECTIONS = {
    "topics": ask_topic,
    "tiered": ask_topic,
    "alterations": ask_alteration,
    "descriptions": ask_description,
    "features": ask_features,
}


@pytest.fixture(scope="module", params=RELEASES)
def sections(request: pytest.FixtureRequest) -> tuple[str, list[SectionResponse]]:
    """The release, and for each question its section, Kafka's response and ours."""
    release: str = request.param
    properties = ANSWERS[release]["properties"]
    controllers = {
        has_tiers: Asked(RELEASES[release], properties | (TIERED if has_tiers else {}))
        for has_tiers in (False, True)
    }
    return release, [
        (section, question, ask(controllers[section == "tiered"], question))
        for section, ask in SECTIONS.items()
        for question in ANSWERS[release][section]
    ]


def as_of_release(release: str, response: dict[str, Any]) -> dict[str, Any]:
    """A response without what later releases added or reworded."""
    reported = dict(response)
    for part in ("effective", "configs"):
        if isinstance(reported.get(part), list):
            reported[part] = [config for config in reported[part] if not is_later(config[0], release)]
    if reported.get("error_message"):
        reported["error_message"] = reworded(reported["error_message"], release)
    return reported


@pytest.mark.parametrize("section", SECTIONS)
def test_responses_are_kafkas(sections, section):
    """The same code, text, values, sources and synonyms."""
    release, responses = sections
    compared = 0
    for asked_section, question, response in responses:
        if asked_section != section:
            continue
        names = [name for name, *_ in question.get("operations", ())]
        names += question["configs"] if "effective" in question else ()
        if any(is_later(name, release) for name in names):
            continue
        expected = as_of_release(release, {key: question[key] for key in response})
        assert as_of_release(release, response) == expected, question.get("resource") or question
        compared += 1
    assert compared >= len(ANSWERS[release][section]) / 2
    assert compared == len(ANSWERS[release][section]) or release != NEWEST_RELEASE
