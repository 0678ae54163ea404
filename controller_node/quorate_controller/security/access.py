"""The permissions of one request, and the audit of the decisions."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from quorate_protocol.kafka.enums import AclOperation, ResourceType
from quorate_protocol.plain_data import dataclass

from quorate_controller.security.authorizer import CLUSTER_NAME, Action

if TYPE_CHECKING:
    from quorate_controller.security.authorizer import Authorizer, Decision


class Access(Protocol):
    """The permissions of one request. Names of resources are never patterns."""

    @property
    def is_restricted(self) -> bool:
        """Whether there is an authorizer."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        logs_denial: bool = True,
    ) -> bool:
        """Whether the sender may do this.

        `logs_denial` is False where a denial withholds nothing that was requested (Kafka's `logIfDenied`).
        """

    def allowed(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        logs_denial: bool = True,
    ) -> frozenset[str]:
        """Return the names of the resources on which the sender may do this."""

    def allowed_operations(
        self, operations: Iterable[AclOperation], resource_type: ResourceType, name: str
    ) -> frozenset[AclOperation]:
        """Return what the sender may do with a resource (KIP-430). The audit leaves it out."""


class Unrestricted:
    """The access of each request without an authorizer."""

    is_restricted = False

    def allows(
        self,
        operation: AclOperation,  # noqa: ARG002 - everything is allowed, here and below
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
        *,
        logs_denial: bool = True,  # noqa: ARG002
    ) -> bool:
        return True

    def allowed(
        self,
        operation: AclOperation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        names: Iterable[str],
        *,
        logs_denial: bool = True,  # noqa: ARG002
    ) -> frozenset[str]:
        return frozenset(names)

    def allowed_operations(
        self,
        operations: Iterable[AclOperation],
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> frozenset[AclOperation]:
        return frozenset(operations)


UNRESTRICTED: Final = Unrestricted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """A decision for the audit log."""

    principal: str
    host: str
    api: str
    action: Action
    decision: "Decision"


class RestrictedAccess:
    """The access of requests of one kind and sender, by an authorizer; `audit` gets the decisions to log.

    With `audits_allowed` permissions are audited, too. No object is made for an audit that is not logged.
    """

    is_restricted = True

    def __init__(
        self,
        authorizer: "Authorizer",
        *,
        principal: str,
        host: str,
        api: str,
        audit: Callable[[Audited], None],
        audits_allowed: bool,
    ) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._api = api
        self._audit = audit
        self._audits_allowed = audits_allowed

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        logs_denial: bool = True,
    ) -> bool:
        # By position, which takes half the time.
        return self._decide(Action(operation, resource_type, name), logs_denial=logs_denial)

    def allowed(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        logs_denial: bool = True,
    ) -> frozenset[str]:
        return frozenset(
            name
            for name, times in Counter(names).items()
            if self._decide(
                Action(
                    operation=operation,
                    resource_type=resource_type,
                    resource_name=name,
                    reference_count=times,
                ),
                logs_denial=logs_denial,
            )
        )

    def allowed_operations(
        self, operations: Iterable[AclOperation], resource_type: ResourceType, name: str
    ) -> frozenset[AclOperation]:
        return frozenset(
            operation
            for operation in operations
            if self._authorizer.decide(
                self._principal,
                self._host,
                Action(operation=operation, resource_type=resource_type, resource_name=name),
            ).is_allowed
        )

    def _decide(self, action: Action, *, logs_denial: bool) -> bool:
        decision = self._authorizer.decide(self._principal, self._host, action)
        if self._audits_allowed if decision.is_allowed else logs_denial:
            self._audit(
                Audited(
                    principal=self._principal,
                    host=self._host,
                    api=self._api,
                    action=action,
                    decision=decision,
                )
            )
        return decision.is_allowed


def allows_on_cluster(access: Access, operation: AclOperation, *, logs_denial: bool = True) -> bool:
    """Whether the sender of a request may do this with the cluster."""
    return access.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, logs_denial=logs_denial)
