"""The table of Kafka's APIs: key, name, versions, classes.

Classes are imported when they are first needed: all of them together take seconds, what a controller uses
milliseconds.
"""

import importlib
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from quorate_protocol.errors import UnknownApi, UnsupportedVersion

__all__ = ("APIS", "API_VERSIONS", "CONTROLLER_APIS", "Api", "api_of", "find_api")

EntityClass = type[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API and the versions of it that we speak: those of Kafka 4.3.1, and what 4.4 announced."""

    key: int
    name: str
    version_min: int
    version_max: int

    def request_class(self, version: int) -> EntityClass:
        """The class of a request in one version. Raises UnsupportedVersion."""
        return _load(self, version, "request")

    def response_class(self, version: int) -> EntityClass:
        """The class of a response in one version. Raises UnsupportedVersion."""
        return _load(self, version, "response")

    @property
    def canonical_request(self) -> EntityClass:
        """The class in which all our code handles the request: that of the highest version."""
        return self.request_class(self.version_max)

    @property
    def canonical_response(self) -> EntityClass:
        """The class in which all our code handles the response: that of the highest version."""
        return self.response_class(self.version_max)

    def is_supported(self, version: int) -> bool:
        """Whether we speak this version."""
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact strings and tagged fields (KIP-482)."""
        flexible: bool = self.request_class(version).__flexible__
        return flexible

    def request_header_version(self, version: int) -> int:
        """The version of the header in front of a request."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """The version of the header in front of a response.

        ApiVersions keeps 0: its reader does not know yet what the other side speaks.
        """
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS else 0


API_VERSIONS: Final = 18

# Versions that kio lacks are generated into this package.
_GENERATED: Final = {("ApiVersions", 5), ("UnregisterController", 0)}


@cache
def _load(api: Api, version: int, kind: str) -> EntityClass:
    if not api.is_supported(version):
        raise UnsupportedVersion(
            f"{api.name} version {version}: versions {api.version_min} to {api.version_max} are known"
        )
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).lower()
    if (api.name, version) in _GENERATED:
        module = f"quorate_protocol.wire.generated.{snake}_{kind}"
    else:
        module = f"kio.schema.{snake}.v{version}.{kind}"
    loaded: EntityClass = getattr(importlib.import_module(module), f"{api.name}{kind.capitalize()}")
    return loaded


def _table(*rows: tuple[int, str, int, int]) -> dict[int, Api]:
    return {
        key: Api(key=key, name=name, version_min=version_min, version_max=version_max)
        for key, name, version_min, version_max in rows
    }


CONTROLLER_APIS: Final = _table(
    (1, "Fetch", 4, 18),
    (17, "SaslHandshake", 0, 1),
    (18, "ApiVersions", 0, 5),
    (19, "CreateTopics", 2, 7),
    (20, "DeleteTopics", 1, 6),
    (29, "DescribeAcls", 1, 3),
    (30, "CreateAcls", 1, 3),
    (31, "DeleteAcls", 1, 3),
    (32, "DescribeConfigs", 1, 4),
    (33, "AlterConfigs", 0, 2),
    (36, "SaslAuthenticate", 0, 2),
    (37, "CreatePartitions", 0, 3),
    (38, "CreateDelegationToken", 1, 3),
    (39, "RenewDelegationToken", 1, 2),
    (40, "ExpireDelegationToken", 1, 2),
    (41, "DescribeDelegationToken", 1, 3),
    (43, "ElectLeaders", 0, 2),
    (44, "IncrementalAlterConfigs", 0, 1),
    (45, "AlterPartitionReassignments", 0, 1),
    (46, "ListPartitionReassignments", 0, 0),
    (49, "AlterClientQuotas", 0, 1),
    (50, "DescribeUserScramCredentials", 0, 0),
    (51, "AlterUserScramCredentials", 0, 0),
    (52, "Vote", 0, 2),
    (53, "BeginQuorumEpoch", 0, 1),
    (54, "EndQuorumEpoch", 0, 1),
    (55, "DescribeQuorum", 0, 2),
    (56, "AlterPartition", 2, 3),
    (57, "UpdateFeatures", 0, 2),
    (58, "Envelope", 0, 0),
    (59, "FetchSnapshot", 0, 1),
    (60, "DescribeCluster", 0, 2),
    (62, "BrokerRegistration", 0, 4),
    (63, "BrokerHeartbeat", 0, 2),
    (64, "UnregisterBroker", 0, 0),
    (67, "AllocateProducerIds", 0, 0),
    (70, "ControllerRegistration", 0, 0),
    (73, "AssignReplicasToDirs", 0, 0),
    (80, "AddRaftVoter", 0, 1),
    (81, "RemoveRaftVoter", 0, 0),
    (82, "UpdateRaftVoter", 0, 0),
    (94, "UnregisterController", 0, 0),
)
"""API key -> what may arrive on a controller's listener."""

APIS: Final = CONTROLLER_APIS | _table(
    (0, "Produce", 3, 13),
    (2, "ListOffsets", 1, 11),
    (3, "Metadata", 0, 13),
    (8, "OffsetCommit", 2, 10),
    (9, "OffsetFetch", 1, 10),
    (10, "FindCoordinator", 0, 6),
    (11, "JoinGroup", 0, 9),
    (12, "Heartbeat", 0, 4),
    (13, "LeaveGroup", 0, 5),
    (14, "SyncGroup", 0, 5),
    (15, "DescribeGroups", 0, 6),
    (16, "ListGroups", 0, 5),
    (21, "DeleteRecords", 0, 2),
    (22, "InitProducerId", 0, 6),
    (23, "OffsetForLeaderEpoch", 2, 4),
    (24, "AddPartitionsToTxn", 0, 5),
    (25, "AddOffsetsToTxn", 0, 4),
    (26, "EndTxn", 0, 5),
    (27, "WriteTxnMarkers", 1, 2),
    (28, "TxnOffsetCommit", 0, 5),
    (34, "AlterReplicaLogDirs", 1, 2),
    (35, "DescribeLogDirs", 1, 5),
    (42, "DeleteGroups", 0, 2),
    (47, "OffsetDelete", 0, 0),
    (48, "DescribeClientQuotas", 0, 1),
    (61, "DescribeProducers", 0, 0),
    (65, "DescribeTransactions", 0, 0),
    (66, "ListTransactions", 0, 2),
    (68, "ConsumerGroupHeartbeat", 0, 1),
    (69, "ConsumerGroupDescribe", 0, 1),
    (71, "GetTelemetrySubscriptions", 0, 0),
    (72, "PushTelemetry", 0, 0),
    (74, "ListConfigResources", 0, 1),
    (75, "DescribeTopicPartitions", 0, 0),
    (76, "ShareGroupHeartbeat", 1, 1),
    (77, "ShareGroupDescribe", 1, 1),
    (78, "ShareFetch", 1, 2),
    (79, "ShareAcknowledge", 1, 2),
    (83, "InitializeShareGroupState", 0, 0),
    (84, "ReadShareGroupState", 0, 0),
    (85, "WriteShareGroupState", 0, 1),
    (86, "DeleteShareGroupState", 0, 0),
    (87, "ReadShareGroupStateSummary", 0, 1),
    (88, "StreamsGroupHeartbeat", 0, 0),
    (89, "StreamsGroupDescribe", 0, 0),
    (90, "DescribeShareGroupOffsets", 0, 1),
    (91, "AlterShareGroupOffsets", 0, 0),
    (92, "DeleteShareGroupOffsets", 0, 0),
)
"""API key -> every API, those that only brokers serve included: for clients."""


def find_api(key: int) -> Api:
    """The API with this key. Raises UnknownApi."""
    api = APIS.get(key)
    if api is None:
        raise UnknownApi(f"API key {key} is not known")
    return api


def api_of(message: object) -> Api:
    """The API that a request or response belongs to."""
    key: int = type(message).__api_key__  # type: ignore[attr-defined]
    return APIS[key]
