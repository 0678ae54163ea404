"""The ACL that a request needs for one of its resources, and the error without it.

Source: kafka.server.ControllerApis and ConfigHelper.
"""

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ConfigResourceType, ResourceType

from quorate_controller.control.api import ControlError
from quorate_controller.control.steps import RECORD, StepBudget
from quorate_controller.security.access import Access, allows_on_cluster
from quorate_controller.security.authorizer import CLUSTER_NAME

NAMES_AT_ONCE: Final = 250
"""Names that are checked between two checks of the step's budget."""

_FAILED: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
}
_PROTECTED_AS: Final = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
}


def check_altering_configs(access: Access, config_type: int, name: str) -> None:
    """Check that configs of a resource may be altered. Log levels and unknown types are checked elsewhere.

    Raises:
        ControlError: CLUSTER_, TOPIC_ or GROUP_AUTHORIZATION_FAILED.
    """
    if config_type != ConfigResourceType.BROKER_LOGGER:
        _check(access, AclOperation.ALTER_CONFIGS, ConfigResourceType(config_type), name)


def check_altering_levels(access: Access) -> None:
    """Check that log levels may be altered.

    Raises:
        ControlError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not allows_on_cluster(access, AclOperation.CLUSTER_ACTION):
        raise not_authorized(ResourceType.CLUSTER)


def check_describing_configs(access: Access, config_type: int, name: str) -> None:
    """Check that configs of a resource may be described, likewise."""
    _check(access, AclOperation.DESCRIBE_CONFIGS, ConfigResourceType(config_type), name)


def _check(access: Access, operation: AclOperation, config_type: ConfigResourceType, name: str) -> None:
    resource_type = _PROTECTED_AS.get(config_type)
    if resource_type is None:
        return
    resource_name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else name
    if not access.allows(operation, resource_type, resource_name):
        raise not_authorized(resource_type)


def check_on_cluster(access: Access, operation: AclOperation, request: str) -> None:
    """Check a request that needs an operation on the cluster; `request` is the name of its API.

    Raises:
        ControlError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not allows_on_cluster(access, operation):
        raise ControlError(
            ErrorCode.cluster_authorization_failed, f"Request {request} needs {operation.name} permission."
        )


def not_authorized(resource_type: ResourceType) -> ControlError:
    """Return the error of a request, or of one of its items, that lacks an ACL."""
    error_code = _FAILED[resource_type]
    return ControlError(error_code, error_code.text)


def finding_allowed(
    access: Access,
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    logs_denial: bool = True,
) -> Generator[None, None, frozenset[str]]:
    """Return the names for which the sender may do this operation, in steps: each name needs a lookup of ACLs."""
    if not access.is_restricted:
        return frozenset(names)
    budget = StepBudget()
    allowed: set[str] = set()
    left = iter(names)
    while some := tuple(islice(left, NAMES_AT_ONCE)):
        allowed |= access.allowed(operation, resource_type, some, logs_denial=logs_denial)
        if budget.spend(RECORD * len(some)):
            yield
    return frozenset(allowed)
