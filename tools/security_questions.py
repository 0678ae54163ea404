"""Questions about quotas, credentials, tokens and log levels, as data, as requests, and the responses as data.

`capture_security_responses.py` puts them to a stock controller, a test in tests/golden to ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.kafka.generated import alter_client_quotas_request as quotas
from quorate_protocol.kafka.generated import alter_configs_request as alter_configs
from quorate_protocol.kafka.generated import alter_user_scram_credentials_request as scram
from quorate_protocol.kafka.generated import create_delegation_token_request as create_token
from quorate_protocol.kafka.generated import expire_delegation_token_request as expire_token
from quorate_protocol.kafka.generated import incremental_alter_configs_request as incremental_alter_configs
from quorate_protocol.kafka.generated import renew_delegation_token_request as renew_token

BROKER_LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
UNKNOWN_OPERATION = 9
MINUTE_MS = 60_000
OWNER_SINCE: Final = 3
"""The first version of CreateDelegationToken with an owner (KIP-373)."""
TOKEN_SECRET: Final = "the secret of these tokens"
LOGGER: Final = "org.apache.kafka.controller.QuorumController"
"""A logger that every controller of stock Kafka has."""

Question = dict[str, Any]
Response = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """How a request reaches the controller: forwarded by a broker for a principal, or directly."""

    user: str | None = None
    has_token: bool = False
    version: int | None = None


Ask = Callable[[Any, Caller], Any]
"""Puts a request to a controller; its response."""
DIRECT: Final = Caller()


# Quotas


def _quota(*entity: tuple[str, str | None], **values: float | None) -> list[Any]:
    """One entry: what it is for, and its quotas; None removes one."""
    return [[list(part) for part in entity], [list(value) for value in values.items()]]


_USER: Final = ("user", "alice")
_CLIENT: Final = ("client-id", "app")
QUOTAS: Final[Sequence[list[Any]]] = (
    [],
    [_quota(_USER, producer_byte_rate=1000.0)],
    [
        _quota(_USER, producer_byte_rate=1000.0, consumer_byte_rate=1.0),
        _quota(("user", None), request_percentage=0.5),
    ],
    [_quota(_USER, _CLIENT, producer_byte_rate=1.0), _quota(_CLIENT, _USER, producer_byte_rate=2.0)],
    [_quota(_USER, ("client-id", None), controller_mutation_rate=0.1)],
    [_quota(_USER, producer_byte_rate=None, consumer_byte_rate=None, unknown=None)],
    [_quota(_USER, unknown=1.0)],
    [_quota(_USER, connection_creation_rate=1.0)],
    [_quota()],
    [_quota(("group", "g"), producer_byte_rate=1.0)],
    [_quota(("user", ""), producer_byte_rate=1.0)],
    [_quota(("client-id", ""), producer_byte_rate=1.0)],
    [_quota(("ip", ""), connection_creation_rate=1.0)],
    [
        _quota(("ip", "10.0.0.1"), connection_creation_rate=5.0),
        _quota(("ip", None), connection_creation_rate=6.0),
    ],
    [_quota(("ip", "::1"), connection_creation_rate=2.0**31 - 1)],
    [_quota(("ip", "localhost"), connection_creation_rate=1.0)],
    [_quota(("ip", "no.such.host.invalid"), connection_creation_rate=1.0)],
    [_quota(("ip", "10.0.0.1"), producer_byte_rate=1.0)],
    [_quota(("ip", "10.0.0.1"), _USER, connection_creation_rate=1.0)],
    *([_quota(_USER, producer_byte_rate=value)] for value in (0.0, -1.0, 1.5, 1e19, 2.0**63, 1.0000001, 0.5)),
    [_quota(("ip", None), connection_creation_rate=2.0**31)],
    [_quota(("ip", None), connection_creation_rate=0.1)],
    [_quota(_USER, request_percentage=-0.0)],
    [_quota(("user", "good"), producer_byte_rate=7.0), _quota(("user", "bad"), producer_byte_rate=0.0)],
    [[[["user", "twice"]], [["producer_byte_rate", 1.0], ["producer_byte_rate", 2.0]]]],
    [[[["user", "a"], ["user", "b"]], [["producer_byte_rate", 1.0]]]],
    [_quota(("user", None), ("client-id", None), producer_byte_rate=1.0)] * 2,
)


def ask_quotas(ask: Ask, question: list[Any], *, validate_only: bool) -> Response:
    """AlterClientQuotas."""
    request = quotas.AlterClientQuotasRequest(
        entries=tuple(
            quotas.EntryData(
                entity=tuple(quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
                ops=tuple(
                    quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values
                ),
            )
            for entity, values in question
        ),
        validate_only=validate_only,
    )
    entries = [
        [sorted([part.entity_type, part.entity_name] for part in entry.entity), *_error_fields(entry)]
        for entry in ask(request, DIRECT).entries
    ]
    return {"entries": sorted(entries, key=str)}


# SCRAM credentials

_SHA_256, _SHA_512 = 1, 2
_SCRAM_FIELDS: Final = ("name", "mechanism", "iterations", "salt", "salted_password")


def _credential(
    name: str, mechanism: int = _SHA_256, iterations: int = 4096, salted_password: str = "salted"
) -> list[Any]:
    return [name, mechanism, iterations, "salt", salted_password]


SCRAM: Final[Sequence[tuple[list[Any], list[Any]]]] = (
    ([], []),
    ([], [_credential("alice"), _credential("bob", _SHA_512, 16384)]),
    ([], [_credential("alice", iterations=5000)]),
    ([["alice", _SHA_512]], []),
    ([["alice", _SHA_256], ["alice", _SHA_256]], []),
    ([["alice", _SHA_256]], [_credential("alice", _SHA_512)]),
    ([], [_credential("alice"), _credential("alice", _SHA_512)]),
    ([], [_credential("alice"), _credential("alice"), _credential("alice")]),
    ([["nobody", _SHA_256], ["alice", _SHA_256]], [_credential("carol")]),
    ([["alice", _SHA_256]], []),
    ([["", _SHA_256]], [_credential("")]),
    ([["", 0]], []),
    ([["dave", 0]], [_credential("erin", 0), _credential("frank", 3), _credential("grace", -1)]),
    ([], [_credential("low", iterations=4095), _credential("high", iterations=16385)]),
    ([], [_credential("none", iterations=0), _credential("minus", iterations=-1)]),
    ([], [_credential("empty", salted_password=""), _credential("good")]),
    ([["nobody", _SHA_256]], [_credential("nobody")]),
)


def ask_scram(ask: Ask, deletions: list[Any], upsertions: list[Any]) -> Response:
    """AlterUserScramCredentials."""
    values = [dict(zip(_SCRAM_FIELDS, upsertion, strict=True)) for upsertion in upsertions]
    request = scram.AlterUserScramCredentialsRequest(
        deletions=tuple(
            scram.ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions
        ),
        upsertions=tuple(
            scram.ScramCredentialUpsertion(
                **{key: value.encode() if key.startswith("salt") else value for key, value in change.items()}
            )
            for change in values
        ),
    )
    results = [[result.user, *_error_fields(result)] for result in ask(request, DIRECT).results]
    return {"results": sorted(results, key=str)}


# Delegation tokens

_ALICE: Final = {"user": "alice"}
_BOB: Final = {"user": "bob"}
_EVE: Final = {"user": "eve"}
_WITH_TOKEN: Final = {"user": "alice", "has_token": True}
TOKENS: Final[Sequence[Question]] = (
    {"do": "create", "by": _ALICE, "renewers": [["User", "bob"]]},
    {"do": "create", "by": _ALICE, "lifetime_ms": 600_000},
    {"do": "create", "by": _ALICE, "lifetime_ms": 0},
    {"do": "create", "by": _ALICE, "owner": ["User", "carol"]},
    {"do": "create", "by": _ALICE, "owner": ["User", ""]},
    {"do": "create", "by": _ALICE, "owner": [None, "carol"]},
    {"do": "create", "by": _ALICE, "owner": ["Group", "g"]},
    {"do": "create", "by": _ALICE, "renewers": [["Group", "g"]]},
    {"do": "create", "by": _ALICE | {"version": 2}},
    {"do": "create", "by": _ALICE | {"version": 1}, "renewers": [["Group", "g"]]},
    {"do": "create", "by": _WITH_TOKEN},
    {"do": "create", "by": _WITH_TOKEN | {"version": 2}},
    {"do": "create", "by": {}},
    {"do": "renew", "by": {}, "token": 0},
    {"do": "expire", "by": {}, "token": 0},
    {"do": "renew", "by": _WITH_TOKEN, "token": 0},
    {"do": "expire", "by": _WITH_TOKEN, "token": 0},
    {"do": "renew", "by": _ALICE, "token": None},
    {"do": "expire", "by": _ALICE, "token": None},
    {"do": "renew", "by": _EVE, "token": 0},
    {"do": "expire", "by": _EVE, "token": 0},
    {"do": "renew", "by": _BOB, "token": 0, "period_ms": 1_800_000},
    {"do": "renew", "by": _ALICE, "token": 0, "period_ms": -1},
    {"do": "renew", "by": _ALICE, "token": 0, "period_ms": 0},
    {"do": "renew", "by": _ALICE, "token": 0, "period_ms": 999_999_999_999},
    {"do": "renew", "by": _ALICE, "token": 1, "period_ms": 7_200_000},
    {"do": "renew", "by": _ALICE, "token": 3},
    {"do": "expire", "by": _BOB, "token": 0, "period_ms": 1_200_000},
    {"do": "expire", "by": _ALICE, "token": 0, "period_ms": 999_999_999_999},
    {"do": "expire", "by": _ALICE, "token": 0, "period_ms": 0},
    {"do": "renew", "by": _ALICE, "token": 0},
    {"do": "expire", "by": _ALICE, "token": 0, "period_ms": 5},
    {"do": "expire", "by": _EVE, "token": 0, "period_ms": 5},
    {"do": "expire", "by": _BOB, "token": 0, "period_ms": -1},
    {"do": "renew", "by": _ALICE, "token": 0},
    {"do": "expire", "by": _ALICE, "token": 0, "period_ms": -5},
)
"""Asked in this order; `token` is the number of the question that created it, None an unknown token."""


@dataclass(slots=True)
class Tokens:
    """The HMACs of the tokens that the questions made, by the number of the question."""

    hmacs: dict[int, bytes] = field(default_factory=dict)

    def ask(self, ask: Ask, number: int, question: Question, now_ms: Callable[[], int]) -> Response:
        """Send one of the three requests about tokens. Times are minutes from `now_ms`, or absolute."""
        caller = Caller(**question["by"])
        if question["do"] == "create":
            return self._create(ask, number, question, caller)
        period = timedelta(milliseconds=question.get("period_ms", -1))
        token_hmac = self.hmacs.get(question["token"], b"unknown") if question["token"] is not None else b"x"
        request: Any = renew_token.RenewDelegationTokenRequest(hmac=token_hmac, renew_period=period)
        if question["do"] == "expire":
            request = expire_token.ExpireDelegationTokenRequest(hmac=token_hmac, expiry_time_period=period)
        response = ask(request, caller)
        expiry_ms = _unix_ms(response.expiry_timestamp)
        return {
            "error_code": int(response.error_code),
            "expiry": expiry_ms if expiry_ms <= 0 else f"{round((expiry_ms - now_ms()) / MINUTE_MS)} min",
        }

    def _create(self, ask: Ask, number: int, question: Question, caller: Caller) -> Response:
        is_old = caller.version is not None and caller.version < OWNER_SINCE
        owner_type, owner_name = ("", "") if is_old else question.get("owner", (None, None))
        request = create_token.CreateDelegationTokenRequest(
            owner_principal_type=owner_type,
            owner_principal_name=owner_name,
            renewers=tuple(
                create_token.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in question.get("renewers", ())
            ),
            max_lifetime=timedelta(milliseconds=question.get("lifetime_ms", -1)),
        )
        response = ask(request, caller)
        times = response.issue_timestamp, response.expiry_timestamp, response.max_timestamp
        issue_ms, expiry_ms, max_ms = map(_unix_ms, times)
        if not response.error_code:
            self.hmacs[number] = response.hmac
        requester = getattr(response, "token_requester_principal_type", None)
        return {
            "error_code": int(response.error_code),
            "owner": [response.principal_type, response.principal_name],
            "requester": None if requester is None else [requester, response.token_requester_principal_name],
            "issue": min(issue_ms, 1),
            "minutes": [round((time_ms - issue_ms) / MINUTE_MS) for time_ms in (expiry_ms, max_ms)],
            "id_length": len(response.token_id),
            "hmac_length": len(response.hmac),
        }


def _unix_ms(time: Any) -> int:
    unix_ms: int = (time - EPOCH) // MILLISECOND
    return unix_ms


# Log levels

_NODE: Final = "3000"
LOGGERS: Final[Sequence[tuple[str, list[tuple[str, int, str | None]]]]] = (
    (_NODE, [("root", SET, "WARN")]),
    (_NODE, [(LOGGER, SET, "TRACE")]),
    (_NODE, [(LOGGER, DELETE, None)]),
    (_NODE, [(LOGGER, DELETE, "")]),
    (_NODE, [("no.such.logger", SET, "INFO")]),
    (_NODE, [("no.such.logger", DELETE, None)]),
    (_NODE, [(LOGGER, SET, "info")]),
    (_NODE, [(LOGGER, SET, "OFF")]),
    (_NODE, [(LOGGER, SET, None)]),
    (_NODE, [(LOGGER, SET, "")]),
    (_NODE, [("", SET, "INFO")]),
    (_NODE, [("root", DELETE, None)]),
    (_NODE, [(LOGGER, APPEND, "INFO")]),
    (_NODE, [("no.such.logger", SUBTRACT, "INFO")]),
    (_NODE, [(LOGGER, UNKNOWN_OPERATION, "INFO")]),
    (_NODE, [("root", SET, "FATAL"), (LOGGER, SET, "loud")]),
    (_NODE, []),
    ("7", [("root", SET, "WARN")]),
    ("", [("root", SET, "WARN")]),
    ("x", [("root", SET, "WARN")]),
    ("+3000", [("root", SET, "WARN")]),
    ("4294970296", [("root", SET, "WARN")]),
)


def ask_levels(ask: Ask, node: str, operations: list[tuple[str, int, str | None]]) -> Response:
    """IncrementalAlterConfigs of a BROKER_LOGGER."""
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER_LOGGER,
        resource_name=node,
        configs=tuple(
            incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in operations
        ),
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=False
    )
    (response,) = ask(request, DIRECT).responses
    return {"outcome": _error_fields(response)}


def ask_old_levels(ask: Ask, node: str) -> Response:
    """AlterConfigs of a BROKER_LOGGER."""
    resource = alter_configs.AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name=node, configs=())
    request = alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=False)
    (response,) = ask(request, DIRECT).responses
    return {"outcome": _error_fields(response)}


def _error_fields(result: Any) -> list[Any]:
    return [int(result.error_code), result.error_message]


def ask_all(ask: Ask, now_ms: Callable[[], int], wait: Callable[[], None]) -> dict[str, list[Response]]:
    """Everything, in order. `wait` is called after each question about tokens."""
    tokens, about_tokens = Tokens(), []
    for number, question in enumerate(TOKENS):
        about_tokens.append(tokens.ask(ask, number, question, now_ms))
        wait()
    return {
        "quotas": [
            ask_quotas(ask, question, validate_only=validate_only)
            for question in QUOTAS
            for validate_only in (True, False)
        ],
        "scram": [ask_scram(ask, *question) for question in SCRAM],
        "tokens": about_tokens,
        "levels": [ask_levels(ask, *question) for question in LOGGERS],
        "old_levels": [ask_old_levels(ask, node) for node in (_NODE, "7")],
    }
