"""`quorate delegation-tokens`: options, what is asked, text, JSON and errors."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.scripted_admin import ScriptedAdmin
from kit.tool_runner import run_tool, usage_error
from quorate.console import UsageError
from quorate.tools.delegation_tokens import check_options, parse_hmac, tokens_text
from quorate_admin.errors import ServerError
from quorate_admin.types.credentials import DelegationToken, KafkaPrincipal
from quorate_protocol.errors import ErrorCode

ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
MINUTE_MS = 60_000
TOKEN = DelegationToken(
    token_id="token",
    owner=ALICE,
    requester=BOB,
    renewers=(ALICE, BOB),
    issue_timestamp_ms=1_700_000_000_000,
    expiry_timestamp_ms=1_700_000_000_000 + MINUTE_MS,
    max_timestamp_ms=1_700_000_000_000 + 2 * MINUTE_MS,
    hmac=b"secret",
)
HMAC = "c2VjcmV0"
TABLE = (
    "\nTOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  "
    "ISSUEDATE       EXPIRYDATE      MAXDATE        \n"
    "\ntoken           c2VjcmV0                       User:alice      User:bob        [User:alice, User:bob]    "
    "2023-11-14T22:13 2023-11-14T22:14 2023-11-14T22:15\n"
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tool writes local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def at(tmp_path: Path) -> tuple[str, ...]:
    """The options of every run."""
    file = tmp_path / "client.properties"
    file.write_text("client.id=test\n")
    return ("delegation-tokens", "--bootstrap-server", "localhost:9092", "--command-config", str(file))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--create --max-life-time-period", "--create needs --command-config"),
        ("--create --command-config", "--create needs --max-life-time-period"),
        ("--renew --command-config --hmac", "--renew needs --renew-time-period"),
        ("--expire --command-config --expiry-time-period", "--expire needs --hmac"),
        ("--create --command-config --max-life-time-period --hmac", "--create can't be used with --hmac"),
        ("--renew --command-config --hmac --renew-time-period --owner-principal", "with --owner-principal"),
        (
            "--expire --command-config --hmac --expiry-time-period --max-life-time-period",
            "--max-life-time-period",
        ),
        ("--describe --command-config --hmac", "--describe can't be used with --hmac"),
    ],
)
def test_options_that_do_not_go_together(options: str, told: str) -> None:
    assert told in usage_error(check_options, options)


def test_a_wrong_hmac_is_not_repeated() -> None:
    assert parse_hmac(HMAC) == b"secret"
    with pytest.raises(UsageError, match="--hmac is not base64") as raised:
        parse_hmac("c2Vjc*V0")
    assert "c2V" not in raised.value.message


def test_tokens_are_told_as_by_kafka() -> None:
    assert tokens_text([]) == TABLE[: TABLE.index("\n\ntoken") + 1]
    assert tokens_text([TOKEN]) == TABLE


async def test_a_token_is_created(admin: ScriptedAdmin, at: tuple[str, ...]) -> None:
    admin.responses["create_delegation_token"] = TOKEN
    create = (*at, "--create", "--max-life-time-period", "1000")
    ran = await run_tool(*create, "--renewer-principal", "User:bob")
    assert ran.exit_code == 0
    assert ran.stdout == (
        "Calling create token operation with renewers :[User:bob] , max-life-time-period :1000\n"
        f"Created delegation token with tokenId : token\n{TABLE}"
    )
    assert admin.calls[0].kwargs == {"renewers": [BOB], "owner": None, "max_lifetime_ms": 1000}
    await run_tool(*create, "--owner-principal", "User:alice")
    assert admin.calls[1].kwargs == {"renewers": [], "owner": ALICE, "max_lifetime_ms": 1000}


async def test_a_token_for_programs_has_the_documented_shape(
    admin: ScriptedAdmin, at: tuple[str, ...]
) -> None:
    token = {
        "tokenId": "token",
        "hmac": HMAC,
        "owner": "User:alice",
        "requester": "User:bob",
        "renewers": ["User:alice", "User:bob"],
        "issueTimestampMs": 1_700_000_000_000,
        "expiryTimestampMs": 1_700_000_060_000,
        "maxTimestampMs": 1_700_000_120_000,
    }
    admin.responses |= {"create_delegation_token": TOKEN, "describe_delegation_tokens": (TOKEN,)}
    ran = await run_tool(*at, "--create", "--max-life-time-period", "-1", "-o", "json")
    assert ran.json == token
    assert (await run_tool(*at, "--describe", "-o", "json")).json == {"tokens": [token]}


async def test_tokens_are_described(admin: ScriptedAdmin, at: tuple[str, ...]) -> None:
    admin.responses["describe_delegation_tokens"] = (TOKEN,)
    ran = await run_tool(*at, "--describe")
    assert ran.stdout == (
        f"Calling describe token operation for current user.\nTotal number of tokens : 1{TABLE}"
    )
    assert admin.calls[0].args == (None,)
    ran = await run_tool(
        *at, "--describe", "--owner-principal", "User:alice", "--owner-principal", "User:bob"
    )
    assert ran.stdout.startswith("Calling describe token operation for owners: [User:alice, User:bob]\n")
    assert admin.calls[1].args == ([ALICE, BOB],)


@pytest.mark.parametrize(
    ("action", "period", "told"),
    [
        ("renew", "renew-time-period", "renew-time-period"),
        ("expire", "expiry-time-period", "expire-time-period"),
    ],
)
async def test_a_token_is_renewed_and_expired(
    admin: ScriptedAdmin, at: tuple[str, ...], action: str, period: str, told: str
) -> None:
    admin.responses[f"{action}_delegation_token"] = 1_700_000_000_000
    arguments = (*at, f"--{action}", "--hmac", HMAC, f"--{period}", "-1")
    ran = await run_tool(*arguments)
    assert ran.stdout == (
        f"Calling {action} token operation with hmac :{HMAC} , {told} :-1\n"
        f"Completed {action} operation. New expiry date : 2023-11-14T22:13"
    )
    assert admin.calls[0].args == (b"secret",)
    assert list(admin.calls[0].kwargs.values()) == [-1]
    assert (await run_tool(*arguments, "-o", "json")).json == {"expiryTimestampMs": 1_700_000_000_000}


async def test_errors_are_told(admin: ScriptedAdmin, at: tuple[str, ...]) -> None:
    admin.responses["create_delegation_token"] = ServerError(ErrorCode.delegation_token_request_not_allowed)
    ran = await run_tool(*at, "--create", "--max-life-time-period", "-1")
    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: Delegation Token requests are")
    ran = await run_tool(*at, "--describe", "--owner-principal", "alice")
    assert ran.exit_code == 2
    assert "--owner-principal: 'alice' is not Type:name" in ran.stderr
    assert (await run_tool(*at, "--create", "--max-life-time-period", "ever")).exit_code == 2
