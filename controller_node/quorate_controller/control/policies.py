"""Policies for topics and configs, which users of a cluster write in Python (KIP-108, KIP-133).

A policy is a class without parameters. `create.topic.policy.class.name=module:Class` names one with
`validate(self, topic: NewTopic)`, `alter.config.policy.class.name=module:Class` one with
`validate(self, altered: AlteredConfigs)`. It refuses with `PolicyViolationError`. A class that also
has `configure(self, properties: Mapping[str, str])` gets the properties of the controller's file first.

A policy runs in the thread that decides and blocks it until it returns.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError


class PolicyViolationError(Exception):
    """A policy refuses a topic or a change of configs; the message is for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic of a request to create or validate it, which has passed all other checks."""

    name: str
    num_partitions: int | None
    """Defaults are filled in; None if the request has assignments."""
    replication_factor: int | None
    """The default is filled in; None if the request has assignments."""
    assignments: Mapping[int, Sequence[int]] | None
    """Brokers by partition, if the request has assignments."""
    configs: Mapping[str, str]
    """The configs in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredConfigs:
    """Configs of a resource that change, those of a new topic included."""

    resource_type: ConfigResourceType
    resource_name: str
    configs: Mapping[str, str | None]
    """New values; None for configs that the request deletes. Configs that AlterConfigs deletes because the request
    leaves them out are not included, as in Kafka."""


class CreateTopicPolicy(Protocol):
    """The interface of the class that `create.topic.policy.class.name` names."""

    def validate(self, topic: NewTopic) -> None:
        """Refuse a topic with PolicyViolationError."""


class AlterConfigPolicy(Protocol):
    """The interface of the class that `alter.config.policy.class.name` names."""

    def validate(self, altered: AlteredConfigs) -> None:
        """Refuse a change with PolicyViolationError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The policies of a controller."""

    create_topic: CreateTopicPolicy | None = None
    alter_config: AlterConfigPolicy | None = None

    def check_topic(self, describe: Callable[[], NewTopic]) -> None:
        """Check a topic after all other checks. `describe` is called only with a policy.

        Raises:
            ControlError: POLICY_VIOLATION with the policy's message.
        """
        if self.create_topic is not None:
            try:
                self.create_topic.validate(describe())
            except PolicyViolationError as violation:
                raise _refusal(violation) from None

    def check_configs(
        self, resource_type: ConfigResourceType, name: str, configs: Mapping[str, str | None]
    ) -> None:
        """Check changed configs after all other checks.

        Raises:
            ControlError: POLICY_VIOLATION with the policy's message.
        """
        if self.alter_config is not None:
            altered = AlteredConfigs(resource_type=resource_type, resource_name=name, configs=dict(configs))
            try:
                self.alter_config.validate(altered)
            except PolicyViolationError as violation:
                raise _refusal(violation) from None


NO_POLICIES: Final = Policies()


def _refusal(violation: PolicyViolationError) -> ControlError:
    return ControlError(ErrorCode.policy_violation, str(violation))
