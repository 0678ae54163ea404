"""Our tables of releases, feature levels, errors and forwarded APIs are what Kafka's classes say."""

from collections.abc import Callable

import pytest
from kit.java.programs import run_java
from kit.releases import RELEASES
from quorate_protocol import features
from quorate_protocol.errors import error_code_of
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.releases import RELEASES as ROWS
from quorate_protocol.records.framing import record_version_for
from quorate_protocol.records.generated import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord

NAMES = [
    "3.3",
    "3.9.2",
    "4.0-IV1",
    "4.2",
    "4.3",
    "4.3.1",
    "4.4",
    "4.4.0",
    "4.4-IV0",
    "4.4-IV2",
    "4.5",
    "4.5-IV0",
    "5.0",
]
Facts = Callable[[str], list[list[str]]]

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Each release."""
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def facts(release: str) -> Facts:
    """What ReleaseFacts.java prints, by the first word of its lines."""
    lines = [line.split("\t") for line in run_java("ReleaseFacts", release, *NAMES)]
    return lambda kind: [rest for first, *rest in lines if first == kind]


def test_levels_of_metadata_version(release: str, facts: Facts) -> None:
    known = [int(level) for level, *_ in facts("metadata.version")]
    assert known == list(features.METADATA_VERSIONS)[: len(known)]
    assert release != RELEASES[-1] or len(known) == len(features.METADATA_VERSIONS)
    for level, name, changes_records in facts("metadata.version"):
        ours = features.METADATA_VERSIONS[int(level)]
        assert (ours.name, ours.changes_records) == (name, changes_records == "true")
    assert facts("metadata.version.production") == [[str(ROWS[release].metadata_version)]]


def test_levels_of_other_features(release: str, facts: Facts) -> None:
    levels = {name: int(level) for name, level in facts("feature")}
    assert levels == ROWS[release].feature_levels
    for name, level, since, needed in facts("level"):
        feature = features.FEATURES[name]
        assert feature.needs_metadata_version.get(int(level), 0) == int(needed)
        assert int(level) == 0 or feature.default_since[int(level)] == int(since)


SINCE = {
    "isScramSupported": features.SCRAM_SINCE,
    "isMetadataTransactionSupported": features.TRANSACTIONS_SINCE,
    "isDelegationTokenSupported": features.DELEGATION_TOKENS_SINCE,
    "isControllerRegistrationSupported": features.CONTROLLER_REGISTRATION_SINCE,
    "isDirectoryAssignmentSupported": features.DIRECTORY_ASSIGNMENT_SINCE,
    "isElrSupported": features.ELIGIBLE_LEADER_REPLICAS_SINCE,
    "isCordonedLogDirsSupported": features.CORDONED_DIRECTORIES_SINCE,
    "isControllerUnregistrationSupported": features.CONTROLLER_UNREGISTRATION_SINCE,
}
NOT_OURS = {"isMigrationSupported", "isCidrAclSupported"}
"""Our controllers neither migrate from ZooKeeper nor serve ACLs."""
RECORDS = {
    "registerBrokerRecordVersion": RegisterBrokerRecord,
    "partitionRecordVersion": PartitionRecord,
    "partitionChangeRecordVersion": PartitionChangeRecord,
}


def test_what_a_level_can_do(facts: Facts) -> None:
    for name, text, response in facts("capability"):
        level = int(text)
        if name in RECORDS:
            assert record_version_for(RECORDS[name], level) == int(response), (name, level)
            assert level == features.METADATA_VERSION_MIN or record_version_for(
                RECORDS[name], level - 1
            ) < int(response)
        elif name == "isLeaderEpochBumpRequiredOnIsrShrink":
            assert (response == "false") == (level == features.KEEPS_LEADER_EPOCH_ON_ISR_SHRINK_SINCE)
        elif name not in NOT_OURS:
            assert (response == "true") == (level == SINCE[name]), (name, level)


def test_names_mean_the_same_levels(release: str, facts: Facts) -> None:
    for text, level in facts("named"):
        try:
            ours = features.metadata_version_named(text)
        except ValueError:
            ours = None
        if ours is not None and ours > ROWS[release].metadata_version and release != RELEASES[-1]:
            continue
        assert str(ours or "unknown") == level, text


def test_error_codes(facts: Facts) -> None:
    for number, name, is_retriable in facts("error"):
        code = error_code_of(int(number))
        assert (int(code), code.name.upper()) == (int(number), name)
        assert code.retriable == (is_retriable == "true"), name


def test_forwarded_apis(release: str, facts: Facts) -> None:
    ours = {
        key for key, api in APIS.items() if api.is_forwardable and api.version_max_in(release) is not None
    }
    assert ours == {int(key) for (key,) in facts("forwardable")}
