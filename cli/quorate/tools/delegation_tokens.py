"""`quorate delegation-tokens`: the options and the output of kafka-delegation-tokens (Kafka 4.4.0), and JSON."""

import base64
import binascii
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.console import (
    DURATION_MS_MAX,
    UsageError,
    examples,
    option,
    run,
    show,
    tool_app,
    tool_options,
    write,
)
from quorate.console.java_text import list_text
from quorate.console.jopt import (
    given_options,
    one_action,
    options_command,
    parse_principals,
    refuse,
    require,
)

if TYPE_CHECKING:
    from quorate_admin.types.credentials import DelegationToken, KafkaPrincipal

ACTIONS = {
    "--create": "Create a token.",
    "--renew": "Let a token live longer.",
    "--expire": "Let a token expire, at once or later.",
    "--describe": "List tokens.",
}
_COLUMN_WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)
_HEADINGS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")

EXAMPLES = examples(
    "quorate delegation-tokens -b localhost:9092 -c admin.properties --create --owner-principal User:alice "
    "--max-life-time-period -1",
    "quorate delegation-tokens -b localhost:9092 -c admin.properties --describe",
)

app = tool_app()


@app.command(cls=options_command(ACTIONS), epilog=EXAMPLES)
def delegation_tokens(
    context: typer.Context,
    *,
    owner_principal: Annotated[
        list[str] | None,
        option("TYPE:NAME", "The owner: of the token to create, or of the tokens to describe."),
    ] = None,
    renewer_principal: Annotated[
        list[str] | None,
        option("TYPE:NAME", "With --create: a principal that may renew the token, besides the owner."),
    ] = None,
    max_life_time_period: Annotated[
        int | None,
        option(
            "MS",
            "With --create: the maximum lifetime; -1 for the cluster's default.",
            min=-DURATION_MS_MAX,
            max=DURATION_MS_MAX,
        ),
    ] = None,
    renew_time_period: Annotated[
        int | None,
        option(
            "MS",
            "With --renew: the time from now; -1 for the cluster's default.",
            min=-DURATION_MS_MAX,
            max=DURATION_MS_MAX,
        ),
    ] = None,
    expiry_time_period: Annotated[
        int | None,
        option(
            "MS",
            "With --expire: the time from now; -1 to expire immediately.",
            min=-DURATION_MS_MAX,
            max=DURATION_MS_MAX,
        ),
    ] = None,
    hmac: Annotated[str | None, option("BASE64", "With --renew, --expire: the token's HMAC.")] = None,
) -> None:
    """Create, renew, expire and describe delegation tokens.

    The client must authenticate: configure that with --command-config. --bootstrap-controller is from KIP-919, and
    Kafka's tool does not have it.
    """
    given = given_options(context)
    action = check_options(given)
    owners = parse_principals("--owner-principal", owner_principal or ())
    if action == "--create":
        assert max_life_time_period is not None
        renewers = parse_principals("--renewer-principal", renewer_principal or ())
        _create(context, owners[0] if owners else None, renewers, max_life_time_period)
    elif action in {"--renew", "--expire"}:
        period_ms = renew_time_period if action == "--renew" else expiry_time_period
        assert hmac is not None
        assert period_ms is not None
        _change_expiry(context, action.removeprefix("--"), hmac, period_ms)
    else:
        _describe(context, owners)


def check_options(given: Collection[str]) -> str:
    """Return the action. Raises UsageError for options that exclude each other."""
    action = one_action(given, tuple(ACTIONS))
    require(given, action, "--command-config")
    require(given, "--create", "--max-life-time-period")
    require(given, "--renew", "--hmac", "--renew-time-period")
    require(given, "--expire", "--hmac", "--expiry-time-period")
    refuse(given, "--create", ("--hmac", "--renew-time-period", "--expiry-time-period"))
    renewal = ("--max-life-time-period", "--owner-principal")
    refuse(given, "--renew", ("--renewer-principal", "--expiry-time-period", *renewal))
    refuse(given, "--expire", ("--renew-time-period", *renewal))
    refuse(
        given,
        "--describe",
        ("--renew-time-period", "--max-life-time-period", "--hmac", "--expiry-time-period"),
    )
    return action


def parse_hmac(text: str) -> bytes:
    """Parse the value of --hmac. Raises UsageError without the value, which is a secret."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UsageError(f"--hmac is not base64: {error}") from None


def _create(
    context: typer.Context,
    owner: "KafkaPrincipal | None",
    renewers: "Sequence[KafkaPrincipal]",
    max_lifetime_ms: int,
) -> None:
    _announce(
        context,
        f"Calling create token operation with renewers :{list_text(renewers)} ,"
        f" max-life-time-period :{max_lifetime_ms}\n",
    )
    token = run(
        lambda admin: admin.create_delegation_token(
            renewers=renewers, owner=owner, max_lifetime_ms=max_lifetime_ms
        ),
        context,
    )
    show(
        context,
        lambda: f"Created delegation token with tokenId : {token.token_id}\n{tokens_text([token])}",
        lambda: token_json(token),
    )


def _change_expiry(context: typer.Context, action: str, hmac: str, period_ms: int) -> None:
    """Renew or expire a token."""
    hmac_bytes = parse_hmac(hmac)
    _announce(
        context, f"Calling {action} token operation with hmac :{hmac} , {action}-time-period :{period_ms}\n"
    )
    expiry_ms = run(
        lambda admin: (
            admin.renew_delegation_token(hmac_bytes, renew_period_ms=period_ms)
            if action == "renew"
            else admin.expire_delegation_token(hmac_bytes, expiry_period_ms=period_ms)
        ),
        context,
    )
    show(
        context,
        lambda: f"Completed {action} operation. New expiry date : {date_text(expiry_ms)}",
        lambda: {"expiryTimestampMs": expiry_ms},
    )


def _describe(context: typer.Context, owners: "Sequence[KafkaPrincipal]") -> None:
    whose = f"owners: {list_text(owners)}" if owners else "current user."
    _announce(context, f"Calling describe token operation for {whose}\n")
    tokens = run(lambda admin: admin.describe_delegation_tokens(owners or None), context)
    show(
        context,
        lambda: f"Total number of tokens : {len(tokens)}{tokens_text(tokens)}",
        lambda: {"tokens": [token_json(token) for token in tokens]},
    )


def _announce(context: typer.Context, text: str) -> None:
    """Kafka's tool announces the action before it can fail."""
    if not tool_options(context).is_json:
        write(text)


def tokens_text(tokens: "Iterable[DelegationToken]") -> str:
    """Kafka's table, with an empty line before each line."""
    rows = (
        (
            token.token_id,
            token.hmac_base64,
            str(token.owner),
            str(token.requester),
            list_text(token.renewers),
            date_text(token.issue_timestamp_ms),
            date_text(token.expiry_timestamp_ms),
            date_text(token.max_timestamp_ms),
        )
        for token in tokens
    )
    return "".join(f"\n{_row(row)}\n" for row in (_HEADINGS, *rows))


def _row(values: Sequence[str]) -> str:
    return " ".join(f"{value:<{width}}" for value, width in zip(values, _COLUMN_WIDTHS, strict=True))


def date_text(timestamp_ms: int) -> str:
    """A time to the minute, in the local time zone."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().strftime("%Y-%m-%dT%H:%M")


def token_json(token: "DelegationToken") -> dict[str, Any]:
    """A token as JSON, with times in Unix milliseconds."""
    return {
        "tokenId": token.token_id,
        "hmac": token.hmac_base64,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issueTimestampMs": token.issue_timestamp_ms,
        "expiryTimestampMs": token.expiry_timestamp_ms,
        "maxTimestampMs": token.max_timestamp_ms,
    }
