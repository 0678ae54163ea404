"""What each request must be allowed before it is served, and the audit log of these decisions (KIP-11, KIP-801).

The tables are those of Kafka's ControllerApis, and of KafkaApis for what only its brokers serve. Without an
authorizer, none of this runs, and every request is served.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from quorate_protocol.kafka.apis import ApiKey, ExtensionKey
from quorate_protocol.kafka.enums import AclOperation, ResourceType

from quorate_controller.control.resource_access import check_on_cluster, not_authorized
from quorate_controller.security.access import RestrictedAccess, allows_on_cluster
from quorate_controller.security.authorizer import CLUSTER_NAME
from quorate_controller.security.hosts import java_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quorate_protocol.kafka.apis import Api

    from quorate_controller.security.access import Access, Audited
    from quorate_controller.security.authorizer import Authorizer
    from quorate_controller.server.counters import RequestCounters

log = logging.getLogger(__name__)

ACCESSES_MAX: Final = 4096
"""How many `Access` objects are kept, by kind of request, principal and host. They have no state."""

ON_CLUSTER: Final[Mapping[int, AclOperation]] = {
    ApiKey.FETCH: AclOperation.CLUSTER_ACTION,
    ApiKey.DESCRIBE_ACLS: AclOperation.DESCRIBE,
    ApiKey.CREATE_ACLS: AclOperation.ALTER,
    ApiKey.DELETE_ACLS: AclOperation.ALTER,
    ApiKey.ELECT_LEADERS: AclOperation.ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: AclOperation.ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: AclOperation.DESCRIBE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: AclOperation.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: AclOperation.ALTER_CONFIGS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: AclOperation.DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AclOperation.ALTER,
    ApiKey.VOTE: AclOperation.CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: AclOperation.CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: AclOperation.CLUSTER_ACTION,
    ApiKey.DESCRIBE_QUORUM: AclOperation.DESCRIBE,
    ApiKey.ALTER_PARTITION: AclOperation.CLUSTER_ACTION,
    ApiKey.UPDATE_FEATURES: AclOperation.ALTER,
    ApiKey.ENVELOPE: AclOperation.CLUSTER_ACTION,
    ApiKey.FETCH_SNAPSHOT: AclOperation.CLUSTER_ACTION,
    ApiKey.BROKER_REGISTRATION: AclOperation.CLUSTER_ACTION,
    ApiKey.BROKER_HEARTBEAT: AclOperation.CLUSTER_ACTION,
    ApiKey.UNREGISTER_BROKER: AclOperation.ALTER,
    ApiKey.ALLOCATE_PRODUCER_IDS: AclOperation.CLUSTER_ACTION,
    ApiKey.CONTROLLER_REGISTRATION: AclOperation.CLUSTER_ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: AclOperation.CLUSTER_ACTION,
    ApiKey.ADD_RAFT_VOTER: AclOperation.ALTER,
    ApiKey.REMOVE_RAFT_VOTER: AclOperation.ALTER,
    ApiKey.UPDATE_RAFT_VOTER: AclOperation.CLUSTER_ACTION,
    ApiKey.UNREGISTER_CONTROLLER: AclOperation.ALTER,
    ExtensionKey.CONTROLLER_HEARTBEAT: AclOperation.CLUSTER_ACTION,
}
"""The operation on the cluster that the sender of a request must be allowed; without it the request is refused."""

BY_HANDLER: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""Requests whose handlers check `RequestContext.access`, mostly for each resource."""

OPEN: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
"""Requests that need no ACL. Those that a token names may renew and expire it."""

_REFUSED_BY_CODE: Final = frozenset(
    {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
)
"""Requests whose `getErrorResponse` takes the text of the code in place of the error's own."""


class Authorization:
    """Checks requests with an authorizer, and writes and counts the decisions."""

    def __init__(self, authorizer: Authorizer, counters: RequestCounters) -> None:
        self._authorizer = authorizer
        self._counters = counters
        self._accesses: dict[tuple[int, str, str, bool], Access] = {}

    def access(self, api: Api, principal: str, host: str) -> Access:
        """Return what a request may do that a principal sent from a host."""
        audits_allowed = log.isEnabledFor(logging.DEBUG)
        key = api.key, principal, host, audits_allowed
        access = self._accesses.get(key)
        if access is None:
            if len(self._accesses) >= ACCESSES_MAX:
                self._accesses.clear()
            access = self._accesses[key] = RestrictedAccess(
                self._authorizer,
                principal=principal,
                host=java_address(host),
                api=api.name,
                audit=self._write,
                audits_allowed=audits_allowed,
            )
        return access

    def denies(self, api: Api, principal: str, host: str) -> bool:
        """Whether `check` will refuse a request whatever its body has, with a response that repeats nothing of it.

        Raises:
            ProtocolError: UNKNOWN_SERVER_ERROR while the ACLs are not loaded.
        """
        operation = ON_CLUSTER.get(api.key)
        if operation is None or api.error.needs_request:
            return False
        access = self.access(api, principal, host)
        return not access.allowed_operations((operation,), ResourceType.CLUSTER, CLUSTER_NAME)

    def check(self, api: Api, access: Access, principal: str) -> None:
        """Check that a request may be served.

        Raises:
            ControlError: CLUSTER_AUTHORIZATION_FAILED.
            ProtocolError: UNKNOWN_SERVER_ERROR while the ACLs are not loaded.
        """
        if api.key in OPEN:
            return
        if api.key in BY_HANDLER:
            self._authorizer.check_ready(principal)
            return
        operation = ON_CLUSTER[api.key]
        if api.key not in _REFUSED_BY_CODE:
            check_on_cluster(access, operation, api.name)
        elif not allows_on_cluster(access, operation):
            raise not_authorized(ResourceType.CLUSTER)

    def _write(self, audited: Audited) -> None:
        """Write a decision as Kafka's audit log does: denials at INFO, others at DEBUG. The log bounds how often."""
        decision = audited.decision
        if decision.is_allowed:
            level, event = logging.DEBUG, "authorization_allowed"
        else:
            level, event = logging.INFO, "authorization_denied"
            self._counters.denied[audited.api] += 1
        if not log.isEnabledFor(level):
            return
        action = audited.action
        facts = {
            "principal": audited.principal,
            "operation": action.operation.name,
            "host": audited.host,
            "resource_type": action.resource_type.name,
            "resource_name": action.resource_name,
            "api": audited.api,
            "reference_count": action.reference_count,
            "rule": decision.rule,
        }
        log.log(level, event, extra={"facts": facts})
