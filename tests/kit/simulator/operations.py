"""An operator who asks for everything else: ACLs, tokens, credentials, producer ids, partitions, directories, levels.

invariant                of each response without an error
-----------------------  -----------------------------------------------------------------------------------------
AcknowledgedIsCommitted  the committed records have what was asked for
ProducerIdsAreUnique     no two blocks of producer ids overlap
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kit.simulator.clients import active_node_id, upsertion
from kit.simulator.coverage import Happening
from kit.simulator.invariants import InvariantViolation
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.kafka.generated import assign_replicas_to_dirs_request as assign
from quorate_protocol.kafka.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from quorate_protocol.kafka.generated.create_acls_request import AclCreation, CreateAclsRequest
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from quorate_protocol.kafka.generated.elect_leaders_request import ElectLeadersRequest
from quorate_protocol.kafka.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from quorate_protocol.kafka.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kit.simulator.clients import SimulatedBroker
    from kit.simulator.fold import Key
    from kit.simulator.world import World

    Check = Callable[[Any], str | None]
    """What is wrong with a response; None if nothing is."""
    Wanted = tuple[Any, Check, Happening] | None

PAUSE_MS: Final = (100, 900)
TIMEOUT: Final = timedelta(seconds=30)
LITERAL, ANY, ALLOW, READ, TOPIC = 3, 1, 3, 3, 2
PREFERRED: Final = 0
LEVELS: Final = {name: levels for name, levels in SUPPORTED_FEATURES.items() if name != KRAFT_VERSION}
"""Features whose levels go up and down, and the lowest and highest level of each. kraft.version has its own fault."""
STEP_MAX: Final = 4
"""How far a level moves at once: metadata.version passes through many of its levels."""
MOVED_MAX: Final = 20
"""Replicas that a broker moves to another directory at once."""
UPGRADE, SAFE_DOWNGRADE = 1, 2
SHA_256: Final = int(ScramMechanism.SCRAM_SHA_256)


class Operations:
    """Sends one request after the other. Each resource gets a name of its own, so that no other client changes it."""

    def __init__(self, world: World, brokers: Sequence[SimulatedBroker]) -> None:
        self._world = world
        self._rng = world.rng
        self._brokers = brokers
        self._row = world.committed.fold.row
        self._number = 0
        self._acls: list[str] = []
        self._users: list[str] = []
        self._tokens: list[tuple[str, bytes]] = []
        self._blocks: dict[int, int] = {}
        self._stopped = False
        world.schedule(1500, self._work)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopped = True

    def _work(self) -> None:
        if self._stopped:
            return
        self._number += 1
        wanted = self._rng.choice(_WISHES)(self)
        if wanted is not None:
            self._ask(*wanted)
        self._world.schedule(self._rng.randint(*PAUSE_MS), self._work)

    def _ask(self, request: Any, check: Check, happening: Happening) -> None:
        def on_response(response: Any) -> None:
            if isinstance(response, Exception) or _error_of(response) is not ErrorCode.none:
                return
            self._world.coverage.count(happening)
            wrong = check(response)
            if wrong is not None:
                raise InvariantViolation("AcknowledgedIsCommitted", f"{request}: {wrong}")

        self._world.network.ask(active_node_id(self._world), request, on_response, forwarded=True)

    def _is_there(self, key: Key, *, expected: bool = True) -> Check:
        return lambda _: None if (self._row(key) is not None) is expected else f"{key}: {self._row(key)}"

    def _broker(self) -> SimulatedBroker | None:
        registered = [broker for broker in self._brokers if broker.epoch is not None]
        return self._rng.choice(registered) if registered else None

    # ------------------------------------------------------------------------------------------ security

    def _create_acl(self) -> Wanted:
        name = f"acl-{self._number}"
        creation = AclCreation(
            resource_type=TOPIC,
            resource_name=name,
            resource_pattern_type=LITERAL,
            principal="User:somebody",
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )

        def check(_: Any) -> str | None:
            self._acls.append(name)
            return None if self._acl_names().get(name) else f"{name} is not there"

        return CreateAclsRequest(creations=(creation,)), check, Happening.ACL_CREATED

    def _delete_acl(self) -> Wanted:
        if not self._acls:
            return None
        name = self._acls.pop(self._rng.randrange(len(self._acls)))
        wanted = DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=name,
            pattern_type_filter=LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )

        def check(_: Any) -> str | None:
            return f"{name} is still there" if self._acl_names().get(name) else None

        return DeleteAclsRequest(filters=(wanted,)), check, Happening.ACL_DELETED

    def _acl_names(self) -> dict[str, bool]:
        return {row[1]: True for key, row in self._world.committed.fold.rows() if key[0] == "acl"}

    def _create_user(self) -> Wanted:
        name = f"operated-{self._number}"

        def check(response: Any) -> str | None:
            self._users.append(name)
            return self._is_there(("scram", SHA_256, name))(response)

        request = AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion(name),))
        return request, check, Happening.CREDENTIAL_CREATED

    def _delete_user(self) -> Wanted:
        if not self._users:
            return None
        name = self._users.pop(self._rng.randrange(len(self._users)))
        deletion = ScramCredentialDeletion(name=name, mechanism=ScramMechanism.SCRAM_SHA_256)
        request = AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=())
        check = self._is_there(("scram", SHA_256, name), expected=False)
        return request, check, Happening.CREDENTIAL_DELETED

    def _create_token(self) -> Wanted:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None,
            owner_principal_name=None,
            renewers=(),
            max_lifetime=timedelta(seconds=self._rng.randint(3, 60)),
        )

        def check(response: Any) -> str | None:
            self._tokens.append((response.token_id, response.hmac))
            return None

        return request, check, Happening.TOKEN_CREATED

    def _renew_token(self) -> Wanted:
        if not self._tokens:
            return None
        _, hmac = self._rng.choice(self._tokens)
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period=timedelta(seconds=5))
        return request, lambda _: None, Happening.TOKEN_RENEWED

    def _remove_token(self) -> Wanted:
        if not self._tokens:
            return None
        token_id, hmac = self._tokens.pop(self._rng.randrange(len(self._tokens)))
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period=timedelta(milliseconds=-1))
        return request, self._is_there(("token", token_id), expected=False), Happening.TOKEN_REMOVED

    # ------------------------------------------------------------------------------------------- cluster

    def _allocate_producer_ids(self) -> Wanted:
        broker = self._broker()
        if broker is None:
            return None

        def check(response: Any) -> str | None:
            start, length = response.producer_id_start, response.producer_id_len
            if any(start < other + size and other < start + length for other, size in self._blocks.items()):
                raise InvariantViolation("ProducerIdsAreUnique", f"{response} overlaps one of {self._blocks}")
            self._blocks[start] = length
            next_id = self._row(("producer ids",)) or 0
            return None if next_id >= start + length else f"the next id is {next_id}"

        request = AllocateProducerIdsRequest(broker_id=broker.broker_id, broker_epoch=broker.epoch)
        return request, check, Happening.PRODUCER_IDS_ALLOCATED

    def _unregister_broker(self) -> Wanted:
        broker = self._broker()
        if broker is None or self._rng.random() < 0.5:
            return None
        epoch = broker.epoch

        def check(_: Any) -> str | None:
            row = self._row(("broker", broker.broker_id))
            return f"{row}" if row is not None and row["epoch"] == epoch else None

        return UnregisterBrokerRequest(broker_id=broker.broker_id), check, Happening.BROKER_UNREGISTERED

    def _change_level(self) -> Wanted:
        name = self._rng.choice(tuple(LEVELS))
        level_min, level_max = LEVELS[name]
        current = self._row(("feature", name)) or 0
        if current < level_min:
            return None  # the first leader has not written the levels yet
        levels = range(max(level_min, current - STEP_MAX), min(level_max, current + STEP_MAX) + 1)
        level = self._rng.choice([level for level in levels if level != current])
        update = FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=UPGRADE if level > current else SAFE_DOWNGRADE
        )
        request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=False)
        return request, lambda _: None, _LEVEL_CHANGES.get(name, Happening.LEVEL_CHANGED)

    # ---------------------------------------------------------------------------------------- partitions

    def _grow_topic(self) -> Wanted:
        partitions = self._world.partitions
        if not partitions.names:
            return None
        topic_id = self._rng.choice(tuple(partitions.names))
        count = len(partitions.keys_of(topic_id)) + 1
        topic = CreatePartitionsTopic(name=partitions.names[topic_id], count=count, assignments=None)

        def check(_: Any) -> str | None:
            if topic_id not in partitions.names:
                return None  # deleted since
            there = len(partitions.keys_of(topic_id))
            return None if there >= count else f"{there} partitions"

        request = CreatePartitionsRequest(topics=(topic,), timeout=TIMEOUT, validate_only=False)
        return request, check, Happening.TOPIC_GROWN

    def _elect_leaders(self) -> Wanted:
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout=TIMEOUT)
        return request, lambda _: None, Happening.ELECTION_ASKED_FOR

    def _assign_directory(self) -> Wanted:
        """A broker moves some of its replicas into one of its directories."""
        broker, history = self._broker(), self._world.partitions.history
        if broker is None:
            return None
        keys = [key for key, states in history.items() if broker.broker_id in states[-1].replicas]
        moved = self._rng.sample(keys, min(len(keys), MOVED_MAX))
        topics = tuple(
            assign.TopicData(
                topic_id=topic_id, partitions=(assign.PartitionData(partition_index=partition_id),)
            )
            for topic_id, partition_id in moved
        )
        directory = assign.DirectoryData(id_=self._rng.choice(broker.directories), topics=topics)
        request = assign.AssignReplicasToDirsRequest(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, directories=(directory,)
        )
        return request, lambda _: None, Happening.REPLICAS_MOVED


_LEVEL_CHANGES: Final = {
    METADATA_VERSION: Happening.METADATA_VERSION_CHANGED,
    ELIGIBLE_LEADER_REPLICAS: Happening.ELR_CHANGED,
}


def _error_of(response: Any) -> ErrorCode:
    """The error of a response, or of its only result."""
    for name in ("results", "filter_results", "directories"):
        for result in getattr(response, name, ()):
            found: ErrorCode = getattr(result, "error_code", ErrorCode.none)
            if found is not ErrorCode.none:
                return found
    error_code: ErrorCode = getattr(response, "error_code", ErrorCode.none)
    return error_code


_WISHES: Final[tuple[Callable[[Operations], Wanted], ...]] = (
    Operations._create_acl,
    Operations._create_acl,
    Operations._delete_acl,
    Operations._create_user,
    Operations._delete_user,
    Operations._create_token,
    Operations._renew_token,
    Operations._remove_token,
    Operations._allocate_producer_ids,
    Operations._unregister_broker,
    *[Operations._change_level] * 4,
    Operations._grow_topic,
    Operations._elect_leaders,
    *[Operations._assign_directory] * 5,
)
