"""Random requests about quotas, users, ACLs and delegation tokens."""

from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st
from kit.differential.question import DIRECT, At, Caller, Question, always, lists, some
from kit.releases import RELEASE
from quorate_protocol.kafka.generated import alter_client_quotas_request as quotas
from quorate_protocol.kafka.generated import alter_user_scram_credentials_request as scram
from quorate_protocol.kafka.generated import create_acls_request as create_acls
from quorate_protocol.kafka.generated import create_delegation_token_request as create_token
from quorate_protocol.kafka.generated import delete_acls_request as delete_acls
from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest
from quorate_protocol.kafka.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from quorate_protocol.kafka.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from quorate_protocol.kafka.releases import NEWEST_RELEASE

_entities: Final = st.sampled_from(
    [
        (("user", "alice"),),
        (("user", None),),
        (("client-id", "app"),),
        (("user", "bob"), ("client-id", None)),
        (("ip", "10.0.0.1"),),
        (("ip", None),),
        (("user", "alice"), ("ip", "10.0.0.1")),
        (("group", "g"),),
        (("user", ""),),
        (),
    ]
)
_ops: Final = st.builds(
    lambda key, value, remove: quotas.OpData(key=key, value=value, remove=remove),
    st.sampled_from(["producer_byte_rate", "request_percentage", "connection_creation_rate", "unknown"]),
    st.sampled_from([1.0, 1000.0, 0.5, 0.0, -1.0, 2.0**63]),
    st.sampled_from([False, False, False, True]),
)


@st.composite
def _quotas(draw: st.DrawFn) -> Question:
    def entry(parts: tuple[tuple[str, str | None], ...], ops: tuple[Any, ...]) -> Any:
        return quotas.EntryData(
            entity=tuple(quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in parts),
            ops=ops[:1],  # of several errors stock Kafka names any
        )

    request = quotas.AlterClientQuotasRequest(
        entries=draw(some(st.builds(entry, _entities, lists(_ops)))),
        validate_only=draw(st.sampled_from([False, False, True])),
    )
    return Question("AlterClientQuotas", always(request))


_users: Final = st.sampled_from(["alice", "bob", "carol", ""])
_mechanisms: Final = st.sampled_from([1, 2, 1, 2, 0, 3])


@st.composite
def _scram(draw: st.DrawFn) -> Question:
    def upsertion(name: str, mechanism: int, iterations: int) -> Any:
        return scram.ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
        )

    def deletion(name: str, mechanism: int) -> Any:
        return scram.ScramCredentialDeletion(name=name, mechanism=mechanism)

    iterations = st.sampled_from([4096, 8192, 16384, 4095, 16385, 0])
    request = scram.AlterUserScramCredentialsRequest(
        deletions=draw(lists(st.builds(deletion, _users, _mechanisms), 2)),
        upsertions=draw(lists(st.builds(upsertion, _users, _mechanisms, iterations), 2)),
    )
    return Question("AlterUserScramCredentials", always(request))


_principals: Final = ("User:alice", "User:bob", "User:*", "Group:g", "nobody")
_hosts: Final = ("*", "10.0.0.1", *(("10.0.0.0/8", "10.0.0.0/99", "") if RELEASE == NEWEST_RELEASE else ()))
"""An older release checks no host, see docs/protocol-differences.md."""
_acl_names: Final = ("given-a", "given", "*", "kafka-cluster", "")


@st.composite
def _create_acls(draw: st.DrawFn) -> Question:
    # UNKNOWN, ANY, MATCH, and numbers that no enum has differ on purpose, see docs/protocol-differences.md.
    creation = st.builds(
        create_acls.AclCreation,
        resource_type=st.sampled_from([2, 2, 2, 3, 4, 5, 6, 7]),
        resource_name=st.sampled_from(_acl_names),
        resource_pattern_type=st.sampled_from([3, 3, 4]),
        principal=st.sampled_from(_principals),
        host=st.sampled_from(_hosts),
        operation=st.sampled_from([2, 3, 4, 5, 8, 11]),
        permission_type=st.sampled_from([3, 3, 2]),
    )
    request = create_acls.CreateAclsRequest(creations=draw(some(creation)))
    return Question("CreateAcls", always(request))


_FILTER: Final = {
    "resource_type_filter": st.sampled_from([1, 2, 3, 4]),
    "resource_name_filter": st.sampled_from([None, None, *_acl_names]),
    "pattern_type_filter": st.sampled_from([1, 2, 3, 4]),
    "principal_filter": st.sampled_from([None, None, *_principals]),
    "host_filter": st.sampled_from([None, None, *_hosts]),
    "operation": st.sampled_from([1, 1, 2, 3]),
    "permission_type": st.sampled_from([1, 1, 2, 3]),
}


@st.composite
def _delete_acls(draw: st.DrawFn) -> Question:
    filters = draw(some(st.builds(delete_acls.DeleteAclsFilter, **_FILTER), 2))
    return Question("DeleteAcls", always(delete_acls.DeleteAclsRequest(filters=filters)))


@st.composite
def _describe_acls(draw: st.DrawFn) -> Question:
    request = draw(st.builds(DescribeAclsRequest, **_FILTER))
    return Question("DescribeAcls", always(request))


_callers: Final = st.sampled_from(
    [*(Caller(user=name) for name in ("alice", "alice", "bob", "carol")), DIRECT]
)
# Long ones: no token expires by itself while a test runs.
_periods: Final = st.sampled_from([timedelta(milliseconds=-1), timedelta(hours=1), timedelta(days=30)])


@st.composite
def _create_token(draw: st.DrawFn) -> Question:
    def renewer(kind: str, name: str) -> Any:
        return create_token.CreatableRenewers(principal_type=kind, principal_name=name)

    renewers = st.builds(
        renewer, st.sampled_from(["User", "User", "Group"]), st.sampled_from(["bob", "carol"])
    )
    owner = draw(st.sampled_from([(None, None), (None, None), ("User", "bob"), ("Group", "g"), ("", "")]))
    request = create_token.CreateDelegationTokenRequest(
        owner_principal_type=owner[0],
        owner_principal_name=owner[1],
        renewers=draw(lists(renewers, 2)),
        max_lifetime=draw(_periods),
    )
    return Question("CreateDelegationToken", always(request), draw(_callers))


def _hmac(at: At, number: int) -> bytes:
    """The HMAC of one of the last tokens, or of no token."""
    return at.hmacs[-number] if 0 < number <= len(at.hmacs) else b"unknown"


@st.composite
def _renew_token(draw: st.DrawFn) -> Question:
    number, period = draw(st.integers(0, 4)), draw(_periods)

    def make(at: At) -> Any:
        return RenewDelegationTokenRequest(hmac=_hmac(at, number), renew_period=period)

    return Question("RenewDelegationToken", make, draw(_callers))


@st.composite
def _expire_token(draw: st.DrawFn) -> Question:
    number, period = draw(st.integers(0, 8)), draw(_periods)

    def make(at: At) -> Any:
        return ExpireDelegationTokenRequest(hmac=_hmac(at, number), expiry_time_period=period)

    return Question("ExpireDelegationToken", make, draw(_callers))


REQUESTS: Final = (
    *(_quotas(), _scram(), _create_acls(), _describe_acls(), _delete_acls()),
    *(_create_token(), _renew_token(), _expire_token()),
)
"""A request of each kind."""
