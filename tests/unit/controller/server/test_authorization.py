"""Authorization of each API that controllers serve, through the dispatcher, over a real socket."""

import io
import logging
from typing import Any

import pytest
from kit.authorization import (
    ALL,
    ANONYMOUS,
    DENY,
    SAMPLES,
    acl_of,
    authorizer_with,
    error_codes,
    response_or_arrival,
)
from quorate_controller.security import access
from quorate_controller.security.access import Audited
from quorate_controller.security.authorizer import CLUSTER_NAME, Authorizer
from quorate_controller.server.authorization import BY_HANDLER, ON_CLUSTER, OPEN, Authorization
from quorate_controller.server.counters import RequestCounters
from quorate_controller.structured_logs import RESOURCES_MAX, configure_logs
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import (
    APIS,
    CONTROLLER_READ_APIS,
    EXTENSION_APIS,
    SERVED_APIS,
    ApiKey,
    find_api,
)
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, ResourceType
from quorate_protocol.kafka.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
)
from quorate_protocol.kafka.generated.create_acls_request import AclCreation, CreateAclsRequest
from quorate_protocol.kafka.generated.default_principal_data import DefaultPrincipalData
from quorate_protocol.kafka.generated.envelope_request import EnvelopeRequest
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.headers import read_response_header


def test_each_served_api_has_its_rule() -> None:
    assert {*SERVED_APIS, *EXTENSION_APIS, *CONTROLLER_READ_APIS} <= ON_CLUSTER.keys() | BY_HANDLER | OPEN
    assert not ON_CLUSTER.keys() & BY_HANDLER
    assert not OPEN & (ON_CLUSTER.keys() | BY_HANDLER)


def test_a_flood_of_denials_hides_no_other_denial() -> None:
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    authorization = Authorization(authorizer_with(), RequestCounters())
    api = APIS[ApiKey.CREATE_TOPICS]
    try:
        configure_logs(stream=stream)
        mallory = authorization.access(api, "User:mallory", "10.0.0.1")
        for number in range(1000):
            mallory.allows(AclOperation.CREATE, ResourceType.TOPIC, f"junk-{number % 300}")
        authorization.access(api, "User:bob", "10.0.0.1").allows(
            AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
        )
        authorization.access(api, "User:mallory", "10.0.0.2").allows(
            AclOperation.CREATE, ResourceType.TOPIC, "junk-1"
        )
    finally:
        root.handlers[-1].close()
        root.handlers[:] = handlers
        root.setLevel(level)
    *flood, bob, elsewhere, summary = stream.getvalue().splitlines()
    assert len(flood) == RESOURCES_MAX
    assert "authorization_denied principal=User:bob operation=ALTER host=10.0.0.1" in bob
    assert "principal=User:mallory operation=CREATE host=10.0.0.2" in elsewhere
    assert "repeats_dropped repeated_event=authorization_denied dropped=800" in summary
    assert "principal=User:mallory" in summary


CASES = [
    ("no authorizer", True),
    ("no ACL", False),
    ("ACL of another operation", False),
    ("denied", False),
    ("allowed", True),
    ("super user", True),
]


def authorizer_of(case: str, needed: AclOperation) -> Authorizer | None:
    """The authorizer of one case, for a request that needs an operation on the cluster."""
    match case:
        case "no authorizer":
            return None
        case "no ACL":
            return authorizer_with()
        case "ACL of another operation":
            return authorizer_with(acl_of(AclOperation.IDEMPOTENT_WRITE), acl_of(ALL, principal="User:x"))
        case "denied":
            return authorizer_with(acl_of(ALL), acl_of(needed, DENY))
        case "allowed":
            return authorizer_with(acl_of(needed))
        case _:
            return authorizer_with(acl_of(ALL, DENY), super_users=(ANONYMOUS,))


@pytest.mark.parametrize(("case", "served"), CASES, ids=[case for case, _ in CASES])
@pytest.mark.parametrize(
    "key",
    [key for key in ON_CLUSTER if key != ApiKey.ENVELOPE],
    ids=lambda key: find_api(key).name,
)
async def test_requests_about_the_cluster(rig: Any, key: int, case: str, served: bool) -> None:
    """A client without the operation gets CLUSTER_AUTHORIZATION_FAILED in the field that the API's clients read,
    and nothing reaches the node.
    """
    rig.node.authorizer = authorizer_of(case, ON_CLUSTER[key])
    version, request = SAMPLES[key]
    await rig.listen()
    client = await rig.connect()
    client.send(request, version)
    response = await response_or_arrival(rig, client)
    if response is None:
        assert served
        return
    assert (ErrorCode.cluster_authorization_failed in error_codes(response)) is not served
    assert not rig.node.controls
    assert not rig.node.rafts
    assert rig.counters.denied == ({} if served else {find_api(key).name: 1})


@pytest.mark.parametrize("key", sorted(BY_HANDLER), ids=lambda key: APIS[key].name)
async def test_handlers_get_what_the_sender_may_do(rig: Any, key: ApiKey) -> None:
    """Requests about several things reach their handlers with the sender's rights."""
    rig.node.authorizer = authorizer_with(acl_of(AclOperation.ALTER))
    await rig.listen()
    client = await rig.connect()
    version, request = SAMPLES[key]
    client.send(request, version)
    await rig.node.requests(1)
    access = rig.node.controls[0][1].access
    assert access.is_restricted
    assert access.allows(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert not access.allows(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)


@pytest.mark.parametrize("key", sorted(OPEN), ids=lambda key: APIS[key].name)
async def test_some_requests_need_no_acl(rig: Any, key: ApiKey) -> None:
    rig.node.authorizer = authorizer_with(is_loaded=lambda: False)
    await rig.listen()
    client = await rig.connect()
    version, request = SAMPLES[key]
    client.send(request, version)
    response = await response_or_arrival(rig, client)
    codes = set() if response is None else error_codes(response)
    assert not codes & {ErrorCode.cluster_authorization_failed, ErrorCode.unknown_server_error}


@pytest.mark.parametrize("key", [ApiKey.VOTE, ApiKey.DESCRIBE_CONFIGS], ids=["on cluster", "by handler"])
async def test_before_the_acls_are_loaded_only_super_users_are_served(rig: Any, key: ApiKey) -> None:
    """As Kafka's AuthorizerNotReadyException."""
    loaded = False
    rig.node.authorizer = authorizer_with(acl_of(ALL), is_loaded=lambda: loaded)
    await rig.listen()
    client = await rig.connect()
    version, request = SAMPLES[key]
    assert ErrorCode.unknown_server_error in error_codes(await client.ask(request, version))
    loaded = True
    client.send(request, version)
    response = await response_or_arrival(rig, client)
    assert response is None or ErrorCode.unknown_server_error not in error_codes(response)


CREATE_ACLS = CreateAclsRequest(
    creations=(
        AclCreation(
            resource_type=2,
            resource_name="orders",
            principal="User:bob",
            host="*",
            operation=ALL,
            permission_type=AclPermissionType.ALLOW,
        ),
    )
)


def envelope(name: str) -> EnvelopeRequest:
    """CreateAcls of a user at 10.1.2.3, forwarded by a broker."""
    data = DefaultPrincipalData(type_="User", name=name, token_authenticated=False)
    return EnvelopeRequest(
        request_data=encode_request(APIS[ApiKey.CREATE_ACLS], 3, 7, "client", CREATE_ACLS),
        request_principal=b"\x00\x00" + encode(data),
        client_host_address=bytes([10, 1, 2, 3]),
    )


async def test_an_envelope_needs_cluster_action_of_the_broker(rig: Any) -> None:
    rig.node.authorizer = authorizer_with(
        acl_of(ALL), acl_of(AclOperation.CLUSTER_ACTION, DENY), super_users=("User:alice",)
    )
    # What is refused need not be readable.
    unreadable = EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=b"")
    await rig.listen()
    client = await rig.connect()
    for request in (envelope("alice"), unreadable):
        response = await client.ask(request, 0)
        assert response.error_code is ErrorCode.cluster_authorization_failed
        assert response.response_data is None
    assert not rig.node.controls


async def test_what_is_in_an_envelope_is_judged_by_the_client(
    rig: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig.node.authorizer = authorizer_with(
        acl_of(AclOperation.CLUSTER_ACTION), acl_of(AclOperation.ALTER, principal="User:alice")
    )
    await rig.listen()
    client = await rig.connect()
    client.send(envelope("alice"), 0)
    await rig.node.requests(1)
    assert rig.node.controls[0][1].access.is_restricted
    other = await rig.connect()
    with caplog.at_level(logging.INFO, logger="quorate_controller"):
        response = await other.ask(envelope("bob"), 0)
    assert response.error_code is ErrorCode.none
    api = APIS[ApiKey.CREATE_ACLS]
    _, offset = read_response_header(response.response_data, api.response_header_version(3))
    (result,) = decode(api.response_class(3), response.response_data, offset).results
    assert result.error_code is ErrorCode.cluster_authorization_failed
    assert result.error_message == "Request CreateAcls needs ALTER permission."
    (record,) = [record for record in caplog.records if record.message == "authorization_denied"]
    assert record.__dict__["facts"] == {
        "principal": "User:bob",
        "operation": "ALTER",
        "host": "10.1.2.3",
        "resource_type": "CLUSTER",
        "resource_name": "kafka-cluster",
        "api": "CreateAcls",
        "reference_count": 1,
        "rule": "DefaultDeny",
    }
    assert rig.counters.denied == {"CreateAcls": 1}


async def test_what_is_allowed_is_logged_for_those_who_debug(
    rig: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(**facts: Any) -> Audited:
        made.append(facts)
        return Audited(**facts)

    monkeypatch.setattr(access, "Audited", counted)
    rig.node.authorizer = authorizer_with(super_users=(ANONYMOUS,))
    await rig.listen()
    client = await rig.connect()
    version, request = SAMPLES[ApiKey.DESCRIBE_QUORUM]
    for level, expected in ((logging.INFO, 0), (logging.DEBUG, 1)):
        caplog.clear()
        with caplog.at_level(level, logger="quorate_controller"):
            await client.ask(request, version)
        written = [record for record in caplog.records if record.message == "authorization_allowed"]
        assert len(written) == len(made) == expected
    assert written[0].__dict__["facts"] == {
        "principal": ANONYMOUS,
        "operation": "DESCRIBE",
        "host": "127.0.0.1",
        "resource_type": "CLUSTER",
        "resource_name": "kafka-cluster",
        "api": "DescribeQuorum",
        "reference_count": 1,
        "rule": "SuperUser",
    }


async def test_quotas_are_refused_with_the_text_of_the_code(rig: Any) -> None:
    """Kafka's text: AlterClientQuotasRequest.getErrorResponse takes that of the code."""
    rig.node.authorizer = authorizer_with()
    await rig.listen()
    client = await rig.connect()
    user = EntityData(entity_type="user", entity_name=None)
    request = AlterClientQuotasRequest(entries=(EntryData(entity=(user,), ops=()),), validate_only=False)
    (entry,) = (await client.ask(request, 1)).entries
    assert entry.error_code is ErrorCode.cluster_authorization_failed
    assert entry.error_message == "Cluster authorization failed."
