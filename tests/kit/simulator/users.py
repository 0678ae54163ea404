"""Users that share a few topics and configs, and the history of their requests and responses, which is checked for
linearizability.

A user waits for the response before its next request, or gives up after a while: then the effect is unknown.
What changes the metadata is linearizable. What only looks at it, a refusal included, comes from the image of the
node that responded: of an active controller all that was committed until another one was elected, of a standby any
earlier state. The history has the possible age of the state of each response.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kit.linearizability import (
    CREATE,
    DELETE,
    READ,
    SET,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Operation,
    TopicModel,
    ValueModel,
    first_violation,
)
from kit.simulator.clients import CONFIG_SET, GROUP_RESOURCE, active_node_id
from kit.simulator.coverage import Happening
from kit.simulator.invariants import InvariantViolation
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType, ConfigSource
from quorate_protocol.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.simulator.world import World

USERS: Final = 3
TOPICS: Final = ("shared-1", "shared-2", "shared-3")
GROUPS: Final = ("shared-group-1", "shared-group-2")
GROUP_CONFIG: Final = "consumer.session.timeout.ms"
LOWEST_VALUE: Final = 45_000
VALUES: Final = 15_000
"""The config takes from 45,000 to 60,000: each value is written once."""
CONFIG_DELETE: Final = 1
PAUSE_MS: Final = (1, 500)
PATIENCE_MS: Final = 2500
ASKS_ACTIVE: Final = 0.8
"""The share of requests that a user sends to the active controller."""

_REFUSALS: Final = {
    ErrorCode.topic_already_exists: TOPIC_ALREADY_EXISTS,
    ErrorCode.unknown_topic_or_partition: UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.unknown_topic_id: UNKNOWN_TOPIC_ID,
}
_UNCERTAIN: Final = frozenset(
    (ErrorCode.not_controller, ErrorCode.request_timed_out, ErrorCode.unknown_server_error)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A user's request, and the function that reads its response."""

    key: str
    action: str
    request: Any
    understand: Callable[[Any], tuple[ErrorCode, Any]]
    """The error, and what was observed."""
    written: Any = None


@dataclass(slots=True)
class History:
    """The operations of all users."""

    operations: list[Operation] = field(default_factory=list)

    def check(self) -> None:
        """Raise InvariantViolation if no order explains the responses."""
        telling = [
            operation
            for operation in self.operations
            # Any other refusal says nothing about the state.
            if operation.refused is None or operation.refused in _REFUSALS.values()
        ]
        topics = [operation for operation in telling if operation.key in TOPICS]
        values = [operation for operation in telling if operation.key in GROUPS]
        violation = first_violation(topics, TopicModel()) or first_violation(values, ValueModel())
        if violation is not None:
            raise InvariantViolation("Linearizability", str(violation))


class User:
    """Asks for one thing after the other, and writes down what becomes of it."""

    def __init__(self, world: World, number: int, history: History, replication_factor: int) -> None:
        self._world = world
        self._rng = world.rng
        self._name = f"user-{number}"
        self._history = history
        self._replication_factor = replication_factor
        self._number = number
        self._known_ids: dict[str, Any] = {}
        self._stopped = False
        world.schedule(self._rng.randint(*PAUSE_MS), self._work)

    def stop(self) -> None:
        """Ask for nothing more; a request in flight counts as one without a response."""
        self._stopped = True

    def _work(self) -> None:
        if self._stopped:
            return
        wish = self._topic_wish() if self._rng.random() < 0.6 else self._group_wish()
        number = len(self._history.operations)
        operation = Operation(
            client=self._name,
            key=wish.key,
            action=wish.action,
            written=wish.written,
            invoked_at=self._world.now_ms,
            returned_at=None,
        )
        self._history.operations.append(operation)
        is_over = False

        def go_on() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._world.schedule(self._rng.randint(*PAUSE_MS), self._work)

        def on_response(response: Any) -> None:
            if not is_over and not self._stopped:
                self._history.operations[number] = self._judge(operation, wish, response, node_id)
                go_on()

        node_id = self._someone()
        self._world.network.ask(node_id, wish.request, on_response)
        self._world.schedule(PATIENCE_MS, go_on)

    def _someone(self) -> int:
        if self._rng.random() < ASKS_ACTIVE:
            return active_node_id(self._world)
        return self._rng.choice(list(self._world.machines))

    def _judge(self, operation: Operation, wish: Wish, response: Any, node_id: int) -> Operation:
        """The operation with its response."""
        machine = self._world.machines[node_id]
        if isinstance(response, Exception):
            # A standby did nothing. A controller that was active may have written it before it was deposed.
            error_code = getattr(response, "error_code", ErrorCode.unknown_server_error)
            is_certain = error_code is ErrorCode.not_controller and not machine.was_active
            return self._refused(operation, str(error_code)) if is_certain else operation
        error_code, observed = wish.understand(response)
        if error_code in _UNCERTAIN:
            return operation
        self._world.coverage.count(Happening.SHARED_RESPONSE)
        if error_code is not ErrorCode.none:
            operation = self._refused(operation, _REFUSALS.get(error_code, error_code.name))
        else:
            if wish.key in TOPICS and observed is not None:
                self._known_ids[wish.key] = observed
            operation = replace(operation, returned_at=self._world.now_ms, observed=observed)
        has_written = operation.refused is None and operation.action != READ
        if not has_written:
            known_ms = self._world.knew_all_at(machine)
            self._world.coverage.count(Happening.OLD_RESPONSE, int(known_ms < operation.invoked_at))
            operation = replace(operation, invoked_at=min(operation.invoked_at, known_ms))
        return operation

    def _refused(self, operation: Operation, error: str) -> Operation:
        return replace(operation, returned_at=self._world.now_ms, refused=error)

    # ----------------------------------------------------------------------------------------- topics

    def _topic_wish(self) -> Wish:
        name = self._rng.choice(TOPICS)
        fate = self._rng.random()
        if fate < 0.35:
            return self._creation(name)
        return self._deletion(name) if fate < 0.6 else self._look_at_topic(name)

    def _creation(self, name: str) -> Wish:
        configs = ()
        if self._replication_factor > 1 and self._rng.random() < 0.5:
            configs = (CreatableTopicConfig(name="min.insync.replicas", value="2"),)
        topic = CreatableTopic(
            name=name,
            num_partitions=2,
            replication_factor=self._replication_factor,
            assignments=(),
            configs=configs,
        )
        return Wish(
            key=name,
            action=CREATE,
            request=CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=30)),
            understand=lambda response: (response.topics[0].error_code, response.topics[0].topic_id),
        )

    def _deletion(self, name: str) -> Wish:
        """By name, or by the id that this user saw last, which may be gone."""
        topic_id = self._known_ids.get(name) if self._rng.random() < 0.5 else None
        state = DeleteTopicState(name=None if topic_id else name, topic_id=topic_id)
        return Wish(
            key=name,
            action=DELETE,
            written=topic_id,
            request=DeleteTopicsRequest(topics=(state,), timeout=timedelta(seconds=30)),
            understand=lambda response: (response.responses[0].error_code, None),
        )

    def _look_at_topic(self, name: str) -> Wish:
        return Wish(
            key=name,
            action=READ,
            request=_description(ConfigResourceType.TOPIC, name, "retention.ms"),
            understand=lambda response: (response.results[0].error_code, None),
        )

    # ----------------------------------------------------------------------------------------- configs

    def _group_wish(self) -> Wish:
        name = self._rng.choice(GROUPS)
        fate = self._rng.random()
        if fate < 0.5:
            return Wish(
                key=name,
                action=READ,
                request=_description(ConfigResourceType.GROUP, name, GROUP_CONFIG),
                understand=_configured_value,
            )
        value = None if fate < 0.6 else str(LOWEST_VALUE + self._rng.randrange(VALUES))
        config = AlterableConfig(
            name=GROUP_CONFIG, config_operation=CONFIG_DELETE if value is None else CONFIG_SET, value=value
        )
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=(config,))
        return Wish(
            key=name,
            action=SET,
            written=value,
            request=IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False),
            understand=lambda response: (response.responses[0].error_code, None),
        )


def _description(resource_type: ConfigResourceType, name: str, config: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=int(resource_type), resource_name=name, configuration_keys=(config,)
    )
    return DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)


def _configured_value(response: Any) -> tuple[ErrorCode, str | None]:
    """The value if the group has one of its own, None if it has the default."""
    (result,) = response.results
    own = [
        config.value
        for config in result.configs
        if config.config_source == int(ConfigSource.DYNAMIC_GROUP_CONFIG)
    ]
    return result.error_code, own[0] if own else None
