"""Finds clients that would not start again when all hosts change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from quorate_admin.diagnosis.client_facts import ClientFacts, ConnectedClient
from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import Examination
from quorate_admin.diagnosis.findings import Code, Finding, Severity
from quorate_admin.diagnosis.known_clients import Rebootstraps

EXAMPLES_MAX: Final = 5
"""The number of kinds of clients that a finding names."""


def find_in_clients(facts: Examination, commands: Commands) -> Iterator[Finding]:
    """Yield what is wrong with the clients, if they were asked for."""
    clients = facts.clients
    if clients is None:
        return
    again = commands.doctor_of_clients(clients.urls)
    staying = [client for client in clients.clients if client.judge()[0] is Rebootstraps.NO]
    if staying:
        yield _staying(staying, again)
    if clients.misrouted:
        yield _misrouted(clients.misrouted)
    unknown = [client for client in clients.clients if client.judge()[0] is Rebootstraps.UNKNOWN]
    if unknown:
        yield _unknown(unknown)
    live = sum(not broker.fenced for broker in (facts.brokers or {}).values())
    if clients.problems or len(clients.examined) < live:
        yield _unexamined(clients, live, again)


def _staying(clients: Sequence[ConnectedClient], again: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        code=Code.CLIENTS_DO_NOT_REBOOTSTRAP,
        message=f"{_connections(clients)} of clients that do not start again when all hosts change",
        evidence=f"{_listed(clients)}. If no broker answers at an address that they know, they do not return to "
        "their bootstrap servers. A roll that keeps the hosts is safe for them.",
        advice="Before hosts change, upgrade these clients, or restart them during the overlap, while old and new "
        "names lead to the brokers. Then:",
        commands=(again,),
        count=_total(clients),
        examples=_examples(clients),
    )


def _unknown(clients: Sequence[ConnectedClient]) -> Finding:
    unnamed = any(client.is_unnamed for client in clients)
    return Finding(
        severity=Severity.NOTE,
        code=Code.CLIENTS_UNKNOWN,
        message=f"{_connections(clients)} of clients of which it is unknown whether they start again when all hosts "
        "change",
        evidence=f"{_listed(clients)}."
        + (" Among the unnamed are brokers that fetch from other brokers." if unnamed else ""),
        advice="Look up what these clients do without a known broker (KIP-899), or restart them during the overlap.",
        count=_total(clients),
        examples=_examples(clients),
    )


def _misrouted(by_url: Mapping[str, int]) -> Finding:
    count = sum(by_url.values())
    return Finding(
        severity=Severity.NOTE,
        code=Code.CLIENTS_MISROUTED,
        message=f"{count} connection{'' if count == 1 else 's'} reached another node than the client expected",
        evidence="Brokers have refused them with REBOOTSTRAP_REQUIRED since they started: "
        f"{', '.join(f'{url}: {number}' for url, number in by_url.items())}. Brokers publish neither the clients nor "
        "the addresses.",
        advice="If the number grows, an address leads elsewhere: look for the name that changed last.",
        count=count,
    )


def _unexamined(clients: ClientFacts, live: int, again: str) -> Finding:
    missing = max(live - len(clients.examined), len(clients.problems))
    reasons = [f"{url}: {reason}" for url, reason in clients.problems.items()]
    if live > len(clients.urls):
        reasons.append(f"{len(clients.urls)} URL{' was' if len(clients.urls) == 1 else 's were'} given")
    return Finding(
        severity=Severity.WARNING,
        code=Code.CLIENTS_NOT_EXAMINED,
        message=f"Clients of {missing} of {max(live, len(clients.urls))} brokers were not examined",
        evidence="; ".join(reasons) + ".",
        advice="Give the URL of the metrics of each broker:",
        commands=(again,),
    )


def _total(clients: Sequence[ConnectedClient]) -> int:
    return sum(client.connections for client in clients)


def _connections(clients: Sequence[ConnectedClient]) -> str:
    total = _total(clients)
    return f"{total} connection{'' if total == 1 else 's'}"


def _examples(clients: Sequence[ConnectedClient]) -> tuple[str, ...]:
    return tuple(map(str, clients[:EXAMPLES_MAX]))


def _listed(clients: Sequence[ConnectedClient]) -> str:
    """Some clients, each with its number of connections and the reason of its judgement."""
    shown = [f"{client}: {client.connections} ({client.judge()[1]})" for client in clients[:EXAMPLES_MAX]]
    more = len(clients) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")
