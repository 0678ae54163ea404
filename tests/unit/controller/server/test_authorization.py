"""Which requests are served to whom: each API that controllers serve, through the dispatcher, over a real socket."""

import asyncio
import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.default_principal_data.v0 import DefaultPrincipalData
from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from quorate_controller.config.listener_sasl import ListenerSasl
from quorate_controller.node.credentials import ImageCredentials
from quorate_controller.security import access
from quorate_controller.security.access import Audited
from quorate_controller.security.authorizer import CLUSTER_NAME, Authorizer
from quorate_controller.server.authorization import BY_HANDLER, ON_CLUSTER, OPEN
from quorate_controller.server.sasl import SaslGate
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.apis import (
    APIS,
    EXTENSION_APIS,
    SERVED_APIS,
    ApiKey,
    ExtensionKey,
    find_api,
)
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.headers import read_response_header
from quorate_protocol.wire.reading import decode
from quorate_protocol.wire.schema import schema_of
from quorate_protocol.wire.writing import encode

GOLDEN = Path(__file__).parent / "golden" / "error_responses.txt"
ANONYMOUS = "User:ANONYMOUS"
ALL = AclOperation.ALL
DENY = AclPermissionType.DENY


def samples() -> dict[int, tuple[int, Any]]:
    """A request of each API in the newest captured version, by key."""
    found: dict[int, tuple[int, Any]] = {
        ApiKey.UNREGISTER_CONTROLLER: (0, UnregisterControllerRequest(controller_id=1)),
        ExtensionKey.CONTROLLER_HEARTBEAT: (
            0,
            ControllerHeartbeatRequest(controller_id=2, last_snapshot_offset=-1, snapshot_state=0),
        ),
    }
    for line in GOLDEN.read_text().splitlines():
        key, version, body = line.split()[:3]
        api = APIS[int(key)]
        request = decode(api.request_class(int(version)), b"" if body == "-" else bytes.fromhex(body))
        found[int(key)] = int(version), convert(request, api.canonical_request)
    return found


SAMPLES = samples()


def cluster_acl(
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    principal: str = ANONYMOUS,
) -> AccessControlEntry:
    """An ACL of the cluster."""
    return AccessControlEntry(
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def authorizer_with(*acls: AccessControlEntry, super_users: tuple[str, ...] = (), **more: Any) -> Authorizer:
    """An authorizer over an image with these ACLs."""
    image = MetadataImage()
    image.replay_all([acl.to_record(uuid4()) for acl in acls], base_offset=0)
    return Authorizer(image, super_users=super_users, **more)


def error_codes(entity: Any) -> set[ErrorCode]:
    """All error codes in a response."""
    codes: set[ErrorCode] = set()
    for field in schema_of(type(entity)):
        value = getattr(entity, field.name)
        if isinstance(value, ErrorCode):
            codes.add(value)
        elif field.struct is not None and value is not None:
            for one in value if field.is_array else (value,):
                codes |= error_codes(one)
    return codes


async def answer_or_arrival(rig: Any, client: Any) -> Any:
    """The response to a request, or None once the node has it. What Raft can't read is answered by the listener."""
    answer = asyncio.ensure_future(client.receive())
    arrival = asyncio.ensure_future(rig.node.requests(1))
    done, others = await asyncio.wait((answer, arrival), return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return answer.result() if answer in done else None


def test_each_served_api_has_its_rule() -> None:
    """Goal: no API is forgotten. Method: each is in one of the three tables, and in no other."""
    assert {*SERVED_APIS, *EXTENSION_APIS} <= ON_CLUSTER.keys() | BY_HANDLER | OPEN
    assert not ON_CLUSTER.keys() & BY_HANDLER
    assert not OPEN & (ON_CLUSTER.keys() | BY_HANDLER)


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
            return authorizer_with(
                cluster_acl(AclOperation.IDEMPOTENT_WRITE), cluster_acl(ALL, principal="User:x")
            )
        case "denied":
            return authorizer_with(cluster_acl(ALL), cluster_acl(needed, DENY))
        case "allowed":
            return authorizer_with(cluster_acl(needed))
        case _:
            return authorizer_with(cluster_acl(ALL, DENY), super_users=(ANONYMOUS,))


@pytest.mark.parametrize(("case", "served"), CASES, ids=[case for case, _ in CASES])
@pytest.mark.parametrize(
    "key",
    [key for key in ON_CLUSTER if key != ApiKey.ENVELOPE],
    ids=lambda key: find_api(key).name,
)
async def test_requests_about_the_cluster(rig: Any, key: int, case: str, served: bool) -> None:
    """Goal: whoever lacks the operation gets CLUSTER_AUTHORIZATION_FAILED where the API's clients look, and nothing
    reaches the node. Method: each API with each kind of access.
    """
    rig.node.authorizer = authorizer_of(case, ON_CLUSTER[key])
    version, request = SAMPLES[key]
    await rig.listen()
    client = await rig.connect()
    client.send(request, version)
    response = await answer_or_arrival(rig, client)
    if response is None:
        assert served
        return
    assert (ErrorCode.cluster_authorization_failed in error_codes(response)) is not served
    assert not rig.node.controls
    assert not rig.node.rafts
    assert rig.counters.denied == ({} if served else {find_api(key).name: 1})


@pytest.mark.parametrize("key", sorted(BY_HANDLER), ids=lambda key: APIS[key].name)
async def test_handlers_get_what_the_sender_may_do(rig: Any, key: ApiKey) -> None:
    """Goal: requests about several things reach their handlers with the sender's rights. Method: ask them there."""
    rig.node.authorizer = authorizer_with(cluster_acl(AclOperation.ALTER))
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
    """Goal: connections can be set up by anybody. Method: those APIs with an authorizer that is not loaded."""
    rig.node.authorizer = authorizer_with(is_loaded=lambda: False)
    await rig.listen()
    client = await rig.connect()
    version, request = SAMPLES[key]
    client.send(request, version)
    response = await answer_or_arrival(rig, client)
    codes = set() if response is None else error_codes(response)
    assert not codes & {ErrorCode.cluster_authorization_failed, ErrorCode.unknown_server_error}


@pytest.mark.parametrize("key", [ApiKey.VOTE, ApiKey.DESCRIBE_CONFIGS], ids=["on cluster", "by handler"])
async def test_before_the_acls_are_loaded_only_super_users_are_served(rig: Any, key: ApiKey) -> None:
    """Goal: as Kafka's AuthorizerNotReadyException. Method: requests of both kinds, then of a super user."""
    loaded = False
    rig.node.authorizer = authorizer_with(cluster_acl(ALL), is_loaded=lambda: loaded)
    await rig.listen()
    client = await rig.connect()
    version, request = SAMPLES[key]
    assert ErrorCode.unknown_server_error in error_codes(await client.ask(request, version))
    loaded = True
    client.send(request, version)
    response = await answer_or_arrival(rig, client)
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
    """Goal: only brokers may speak for others. Method: a sender that may do everything else; the error is outside."""
    rig.node.authorizer = authorizer_with(
        cluster_acl(ALL), cluster_acl(AclOperation.CLUSTER_ACTION, DENY), super_users=("User:alice",)
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
    """Goal: principal and host are those of the forwarded client. Method: alice may alter, bob may not."""
    rig.node.authorizer = authorizer_with(
        cluster_acl(AclOperation.CLUSTER_ACTION), cluster_acl(AclOperation.ALTER, principal="User:alice")
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
    (record,) = [one for one in caplog.records if one.message == "authorization_denied"]
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
    """Goal: the audit has permissions at DEBUG, and nothing is made for it at INFO. Method: one allowed request at
    both levels, while the audited decisions are counted.
    """
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
        written = [one for one in caplog.records if one.message == "authorization_allowed"]
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


LOGINS = {"no ACL": "bob", "denied": "carol", "allowed": "alice"}
"""The users of SASL, who have the password of their name."""


@pytest.mark.parametrize("case", ["anonymous", "wrong password", *LOGINS])
@pytest.mark.parametrize("key", ON_CLUSTER, ids=lambda key: find_api(key).name)
async def test_what_direct_connections_may_do_depends_on_their_login(rig: Any, key: int, case: str) -> None:
    """Goal: no request without authentication, and none without the principal's own right; Envelope, too.

    Method: each API that needs an operation on the cluster, on a listener with SASL, from each kind of client.
    """
    rig.node.authorizer = authorizer_with(
        cluster_acl(ON_CLUSTER[key], principal="User:alice"),
        cluster_acl(ALL, principal="User:carol"),
        cluster_acl(ON_CLUSTER[key], DENY, principal="User:carol"),
        super_users=(ANONYMOUS,),  # whom nobody is here
    )
    await rig.listen()
    config = ListenerSasl(
        mechanisms=("PLAIN",), passwords={one: one for one in LOGINS.values()}, failure_delay_ms=0
    )
    rig.listener.handler = SaslGate(
        rig.listener.handler, config, ImageCredentials(MetadataImage(), None), rig.counters
    )
    client = await rig.connect()
    version, request = SAMPLES[key]
    if case != "anonymous":
        user = LOGINS.get(case, "alice")
        password = "wrong" if case == "wrong password" else user
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        message = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
        outcome = (await client.ask(message, 2)).error_code
        assert (outcome is ErrorCode.none) is (case in LOGINS)
    if case not in LOGINS:
        client.send(request, version)
        assert await client.is_closed()
        assert not rig.node.controls
        assert not rig.node.rafts
        return
    client.send(request, version)
    response = await answer_or_arrival(rig, client)
    codes = set() if response is None else error_codes(response)
    if case == "allowed":
        assert ErrorCode.cluster_authorization_failed not in codes
    else:
        assert ErrorCode.cluster_authorization_failed in codes
        assert not rig.node.controls
        assert not rig.node.rafts


async def test_quotas_are_refused_with_the_text_of_the_code(rig: Any) -> None:
    """Goal: Kafka's text: AlterClientQuotasRequest.getErrorResponse takes that of the code. Method: no ACL."""
    rig.node.authorizer = authorizer_with()
    await rig.listen()
    client = await rig.connect()
    user = EntityData(entity_type="user", entity_name=None)
    request = AlterClientQuotasRequest(entries=(EntryData(entity=(user,), ops=()),), validate_only=False)
    (entry,) = (await client.ask(request, 1)).entries
    assert entry.error_code is ErrorCode.cluster_authorization_failed
    assert entry.error_message == "Cluster authorization failed."
