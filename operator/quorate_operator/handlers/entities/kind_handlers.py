"""The parts of the reconcile that differ by kind: observing, planning and changing."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, cast

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError, ServerError
from quorate_protocol.security.jaas import format_jaas

from quorate_operator import clock
from quorate_operator.entities.balance import plan_rebalancing
from quorate_operator.entities.balance_facts import ObservedBalance, RebalanceChange, StoredRebalance
from quorate_operator.entities.plan import Change, EntityPlan, ObservedKafka
from quorate_operator.entities.topics import (
    ObservedTopic,
    StoredTopic,
    has_factor,
    plan_topic,
    plan_topic_deletion,
)
from quorate_operator.entities.users import (
    ApplyCertificate,
    CreateSecret,
    ObservedCertificate,
    ObservedSecret,
    ObservedUser,
    SetCredentials,
    StoredUser,
    plan_user,
    plan_user_deletion,
)
from quorate_operator.gateway.rebalances import change_rebalance, observe_rebalance
from quorate_operator.gateway.topics import TopicChange, change_topics, observe_assignment, observe_topics
from quorate_operator.gateway.users import UserChange, change_users, observe_users
from quorate_operator.models.entities import JAAS_CONFIG, PASSWORD, SASL_MECHANISM, USERNAME
from quorate_operator.models.manifests import Entity
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_operator.models.secrets import FOR_USERS, certificate_of, is_labelled
from quorate_operator.models.topics import KafkaTopic
from quorate_operator.models.users import KafkaUser
from quorate_operator.resources.certificates import certificate_of_user, why_not_issued
from quorate_operator.resources.names import FINALIZER, owner_reference
from quorate_operator.resources.secrets import described_secret
from quorate_operator.runtime.kubernetes.api import (
    CERTIFICATE,
    REBALANCES,
    SECRET,
    TOPICS,
    USERS,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)

SECRETS_AT_A_TIME_MAX = 16
"""How many Secrets and Certificates of users are read or written at the same time."""
THE_BALANCE = "the balance"
PASSWORD_SIZE_BYTES = 32
"""The number of random bytes in a password, which has 43 characters."""


class Seen(NamedTuple):
    """A resource, and its status, which is empty if it is about another cluster."""

    resource: Entity
    status: Mapping[str, Any]
    kept: dict[str, Any]
    """What its handler keeps between two passes. It is dropped together with the resource."""
    is_thorough: bool = True
    """Whether objects of the API server are read again that were read in an earlier pass."""


class ResourceChange(NamedTuple):
    """The next change of a resource."""

    resource: Entity
    change: Change


class KindHandler(Protocol):
    """Fetches, decides and applies for one kind."""

    plans_long: bool
    """Whether `plan` runs in a thread, because it may take long."""

    @property
    def kind(self) -> Kind:
        """The kind."""

    def name_of(self, resource: Entity) -> str:
        """Return the name in Kafka, which one resource may manage."""

    def leaves_nothing(self, seen: Seen) -> bool:
        """Whether the deletion of a resource deletes nothing in Kafka, by its spec and its status."""

    @property
    def way_out(self) -> str:
        """What removes a deleted resource whose cluster can't be reached."""

    async def observe(
        self, client: AdminClient, seen: Sequence[Seen], kafka: ObservedKafka
    ) -> Mapping[str, object]:
        """Return what exists, or a ServerError, by uid. Raises AdminError, ApiError."""

    def plan(
        self,
        resource: Entity,
        observed: object,
        kafka: ObservedKafka,
        status: Mapping[str, Any],
        *,
        is_deleted: bool,
    ) -> EntityPlan:
        """Plan one resource. Pure."""

    async def apply(
        self, client: AdminClient, changes: Sequence[ResourceChange]
    ) -> Sequence[Exception | None]:
        """Make a change of each of several resources; return the AdminError or ApiError of each, in their order."""

    def status_after(self, change: Change) -> Mapping[str, Any]:
        """Return the fields of the status that hold once a change is made; the next plan depends on them."""


class TopicHandler:
    """Implements `KindHandler` for KafkaTopics."""

    kind = TOPICS
    plans_long = False
    way_out = "set spec.deletionPolicy to Retain to remove the resource and leave the topic"

    def name_of(self, resource: Entity) -> str:
        return _topic(resource).topic_name

    def leaves_nothing(self, seen: Seen) -> bool:
        is_retained = _topic(seen.resource).spec.deletion_policy == "Retain"
        return is_retained or not StoredTopic.of_status(seen.status).is_managed

    async def observe(
        self, client: AdminClient, seen: Sequence[Seen], kafka: ObservedKafka
    ) -> Mapping[str, ObservedTopic | ServerError | None]:
        resources = [_topic(item.resource) for item in seen]
        under_way = await client.list_partition_reassignments()
        found = dict(await observe_topics(client, (resource.topic_name for resource in resources), under_way))
        topics = {name: topic for name, topic in found.items() if isinstance(topic, ObservedTopic)}
        if any(
            not has_factor(resource.spec.replication_factor, partition)
            for resource in resources
            if resource.topic_name in topics
            for partition in topics[resource.topic_name].partitions.values()
        ):
            assignment = await observe_assignment(client, topics.values(), kafka, under_way)
            found |= {name: replace(topic, assignment=assignment) for name, topic in topics.items()}
        return {uid_of(resource): found[resource.topic_name] for resource in resources}

    def plan(
        self,
        resource: Entity,
        observed: object,
        kafka: ObservedKafka,  # noqa: ARG002
        status: Mapping[str, Any],
        *,
        is_deleted: bool,
    ) -> EntityPlan:
        assert observed is None or isinstance(observed, ObservedTopic)
        stored = StoredTopic.of_status(status)
        if is_deleted:
            return plan_topic_deletion(_topic(resource), observed, stored)
        return plan_topic(_topic(resource), observed, stored=stored)

    async def apply(
        self, client: AdminClient, changes: Sequence[ResourceChange]
    ) -> Sequence[Exception | None]:
        return await change_topics(client, [cast("TopicChange", item.change) for item in changes])

    def status_after(self, change: Change) -> Mapping[str, Any]:  # noqa: ARG002
        return {}


class UserHandler:
    """Implements `KindHandler` for KafkaUsers. Secrets are read in thorough passes; passwords are created once."""

    kind = USERS
    plans_long = False
    way_out = "set spec.deletionPolicy to Retain to remove the resource and revoke nothing"

    def __init__(self, api: KubernetesApi, now_ms: Callable[[], int] = clock.now_ms) -> None:
        self._api = api
        self._now_ms = now_ms
        self._requests = asyncio.Semaphore(SECRETS_AT_A_TIME_MAX)

    def name_of(self, resource: Entity) -> str:
        return _user(resource).principal

    def leaves_nothing(self, seen: Seen) -> bool:
        is_retained = _user(seen.resource).spec.deletion_policy == "Retain"
        return is_retained or not StoredUser.of_status(seen.status).is_managed

    async def observe(
        self,
        client: AdminClient,
        seen: Sequence[Seen],
        kafka: ObservedKafka,  # noqa: ARG002
    ) -> Mapping[str, ObservedUser]:
        users = [_user(item.resource) for item in seen]
        names, principals = {user.user_name for user in users}, {user.principal for user in users}
        facts = await observe_users(client, sorted(names), sorted(principals))
        await asyncio.gather(
            *(
                self._read_objects(user, item.kept)
                for user, item in zip(users, seen, strict=True)
                # A password is set only from a Secret that was just read.
                if item.is_thorough
                or not item.kept
                or (user.mechanism and user.mechanism not in facts.mechanisms.get(user.user_name, ()))
            )
        )
        return {
            uid_of(user): ObservedUser(
                mechanisms=facts.mechanisms.get(user.user_name, frozenset()),
                acls=None if facts.acls is None else facts.acls.get(user.principal, frozenset()),
                quotas=facts.quotas.get(user.principal.partition(":")[2], {}),
                **item.kept,
            )
            for user, item in zip(users, seen, strict=True)
        }

    async def _read_objects(self, user: KafkaUser, kept: dict[str, Any]) -> None:
        kept["secret"], kept["certificate"] = await self._secret(user), await self._certificate(user)

    async def _secret(self, user: KafkaUser) -> ObservedSecret | None:
        if user.secret_name is None:
            return None
        async with self._requests:
            found = await self._api.get(SECRET, _namespace(user), user.secret_name)
        if found is None:
            return None
        metadata, values = found["metadata"], described_secret(found).values
        return ObservedSecret(
            version=f"{metadata['uid']}/{metadata['resourceVersion']}",
            password=values.get(PASSWORD),
            has_other_login=has_other_login(user, values),
            is_own=_is_owned(found, user),
            is_labelled=is_labelled(found, FOR_USERS),
            certificate=certificate_of(found),
        )

    async def _certificate(self, user: KafkaUser) -> ObservedCertificate | None:
        """Return the Certificate of a user; None if it names no issuer, or has none yet."""
        if not user.is_issued or user.secret_name is None:
            return None
        async with self._requests:
            try:
                found = await self._api.get(CERTIFICATE, _namespace(user), user.secret_name)
                if found is None:
                    # Only a list fails if the kind does not exist.
                    await self._api.list(CERTIFICATE, _namespace(user))
                    return None
            except ApiError as error:
                if not error.is_of_unknown_kind:
                    raise
                is_unknown = f"this Kubernetes has no {CERTIFICATE.api_version} {CERTIFICATE.name}"
                return ObservedCertificate(unusable=is_unknown if error.is_missing else str(error))
        wanted = certificate_of_user(user)["spec"]
        times = ("duration", "renewBefore")
        # Others may have added fields.
        is_as_wanted = all(found["spec"].get(key) == value for key, value in wanted.items()) and not any(
            key in found["spec"] and key not in wanted for key in times
        )
        return ObservedCertificate(
            is_own=_is_owned(found, user), is_as_wanted=is_as_wanted, problem=why_not_issued(found)
        )

    def plan(
        self,
        resource: Entity,
        observed: object,
        kafka: ObservedKafka,
        status: Mapping[str, Any],
        *,
        is_deleted: bool,
    ) -> EntityPlan:
        assert isinstance(observed, ObservedUser)
        user, stored = _user(resource), StoredUser.of_status(status)
        if is_deleted:
            return plan_user_deletion(user, observed, stored)
        return plan_user(user, observed, kafka, stored=stored, now_ms=self._now_ms())

    async def apply(
        self, client: AdminClient, changes: Sequence[ResourceChange]
    ) -> Sequence[Exception | None]:
        objects = [item for item in changes if not isinstance(item.change, UserChange)]
        in_kafka = [item for item in changes if isinstance(item.change, UserChange)]
        made = await asyncio.gather(*map(self._create_object, objects))
        errors: dict[str, Exception | None] = {
            uid_of(item.resource): error for item, error in zip(objects, made, strict=True)
        }
        changed = await change_users(client, [cast("UserChange", item.change) for item in in_kafka])
        errors |= {uid_of(item.resource): error for item, error in zip(in_kafka, changed, strict=True)}
        return [errors[uid_of(item.resource)] for item in changes]

    def status_after(self, change: Change) -> Mapping[str, Any]:
        return {"secretVersion": change.secret_version} if isinstance(change, SetCredentials) else {}

    async def _create_object(self, item: ResourceChange) -> ApiError | None:
        """Create the Secret or the Certificate of a user."""
        user = _user(item.resource)
        try:
            async with self._requests:
                if isinstance(item.change, CreateSecret):
                    body = secret_of_user(user, item.change, secrets.token_urlsafe(PASSWORD_SIZE_BYTES))
                    await self._api.create(SECRET, _namespace(user), body)
                else:
                    assert isinstance(item.change, ApplyCertificate)
                    await self._api.apply(CERTIFICATE, _namespace(user), certificate_of_user(user))
        except ApiError as error:
            return error
        return None


class RebalanceHandler:
    """Implements `KindHandler` for KafkaRebalances: a cluster has one balance, which one resource manages."""

    kind = REBALANCES
    plans_long = True
    way_out = f"remove its finalizer {FINALIZER} to leave the moves that are under way"

    def name_of(self, resource: Entity) -> str:  # noqa: ARG002
        return THE_BALANCE

    def leaves_nothing(self, seen: Seen) -> bool:
        stored = StoredRebalance.of_status(seen.status)
        return not stored.slice and not stored.rates

    async def observe(
        self, client: AdminClient, seen: Sequence[Seen], kafka: ObservedKafka
    ) -> Mapping[str, ObservedBalance]:
        return {
            uid_of(item.resource): await observe_rebalance(
                client, _rebalance(item.resource), StoredRebalance.of_status(item.status), kafka
            )
            for item in seen
        }

    def plan(
        self,
        resource: Entity,
        observed: object,
        kafka: ObservedKafka,  # noqa: ARG002
        status: Mapping[str, Any],
        *,
        is_deleted: bool,
    ) -> EntityPlan:
        assert isinstance(observed, ObservedBalance)
        stored = StoredRebalance.of_status(status)
        return plan_rebalancing(_rebalance(resource), observed, stored, is_deleted=is_deleted)

    async def apply(
        self, client: AdminClient, changes: Sequence[ResourceChange]
    ) -> Sequence[Exception | None]:
        errors: list[AdminError | None] = []
        for item in changes:
            assert isinstance(item.change, RebalanceChange)
            try:
                await change_rebalance(client, item.change)
            except AdminError as error:
                errors.append(error)
            else:
                errors.append(None)
        return errors

    def status_after(self, change: Change) -> Mapping[str, Any]:  # noqa: ARG002
        return {}


def secret_of_user(user: KafkaUser, change: CreateSecret, password: str) -> Object:
    """Return the Secret of a user, which is deleted together with its resource."""
    login = {USERNAME: change.user, PASSWORD: password}
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.name,
        "metadata": {
            "name": change.name,
            "labels": {"app.kubernetes.io/managed-by": "quorate"},
            "ownerReferences": [owner_reference(user)],
        },
        "stringData": {
            **login,
            SASL_MECHANISM: change.mechanism,
            JAAS_CONFIG: format_jaas(change.mechanism, login),
        },
    }


def has_other_login(user: KafkaUser, values: Mapping[str, str]) -> bool:
    """Whether a Secret has another `sasl.mechanism` than the user, or its password is not in `sasl.jaas.config`.

    Then the password, or the user's mechanism, was edited.
    """
    if user.mechanism is not None and values.get(SASL_MECHANISM, user.mechanism) != user.mechanism:
        return True
    if user.mechanism is None or JAAS_CONFIG not in values or PASSWORD not in values:
        return False
    login = {USERNAME: user.user_name, PASSWORD: values[PASSWORD]}
    return values[JAAS_CONFIG] != format_jaas(user.mechanism, login)


def _is_owned(item: Object, user: KafkaUser) -> bool:
    return any(owner["uid"] == user.metadata.uid for owner in item["metadata"].get("ownerReferences", ()))


def uid_of(resource: Entity) -> str:
    """Return the uid of a resource as the API server has it."""
    assert resource.metadata.uid is not None
    return resource.metadata.uid


def _namespace(resource: Entity) -> str:
    assert resource.metadata.namespace is not None
    return resource.metadata.namespace


def _user(resource: Entity) -> KafkaUser:
    assert isinstance(resource, KafkaUser)
    return resource


def _topic(resource: Entity) -> KafkaTopic:
    assert isinstance(resource, KafkaTopic)
    return resource


def _rebalance(resource: Entity) -> KafkaRebalance:
    assert isinstance(resource, KafkaRebalance)
    return resource
