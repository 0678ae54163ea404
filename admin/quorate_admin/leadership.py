"""Asks each controller by itself for the leader, so that a lost quorum is reported within seconds.

A client that waits for a leader retries until `default.api.timeout.ms`, a minute, and can't name the missing voters.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.identity import node_question

from quorate_admin.config import Address, AdminConfig
from quorate_admin.diagnosis.quorum_search import AskedController, QuorumSearch
from quorate_admin.errors import (
    AdminError,
    ConnectionFailedError,
    NoLeaderError,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
)
from quorate_admin.network.connection import Connection
from quorate_admin.network.transport import describe_cluster_request
from quorate_admin.operations.cluster import api_versions_of
from quorate_admin.operations.controllers import describe_quorum_request, metadata_partitions

ASK_TIMEOUT_MS: Final = 2_000
"""The timeout of the requests to a controller."""
DETAILS_TIMEOUT_MS: Final = 1_000
"""The timeout of details that some controllers return late: those of Quorate load their metadata for 5 s at most."""
REFUSED_WAIT_MS: Final = 2_000
"""All addresses refuse connections for this long before that is reported: a node that restarts listens again soon."""
LEADER_WAIT_MS: Final = 5_000
"""A quorum has no leader for this long before that is reported: an election after a failure takes less."""
SEARCH_EVERY_MS: Final = 500
ADDRESSES_MAX: Final = 64
_STATIC_VOTERS: Final = "controller.quorum.voters"
_BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
_OWN_ID: Final = re.compile(r"expected (\d+)")
_UNUSED_ID: Final = -1
_LEADERLESS: Final = frozenset(
    {
        ErrorCode.unsupported_version,
        ErrorCode.not_controller,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
    }
)
"""Error codes of controllers without a leader, among other reasons."""

_Result = TypeVar("_Result")


async def until_led(
    config: AdminConfig, working: "asyncio.Future[_Result]", started_ms: int, *, is_patient: bool = False
) -> _Result:
    """The result of the work that a client began at `started_ms` of the event loop's clock.

    Unless `is_patient`, the work is cancelled within seconds if the quorum has no leader.

    Raises:
        NoLeaderError: no controller leads; also in place of an error that is due to that.
        UnreachableError: no controller answers.
        AdminError: from the client.
    """
    is_ended = is_patient or working.done()
    leader_check = None if is_ended else asyncio.ensure_future(_problem(config, started_ms))
    problem: AdminError | None = None
    try:
        if leader_check is not None:
            tasks: list[asyncio.Future[Any]] = [working, leader_check]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and (problem := leader_check.result()) is not None:
                raise problem
        return await working
    except AdminError as error:
        if error is problem or not _may_lack_leader(error):
            raise
        search = await search_quorum(config)
        if search.is_led is not False:
            raise
        raise NoLeaderError(str(search)) from error
    finally:
        for task in (working, leader_check):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])


def _may_lack_leader(error: AdminError) -> bool:
    if isinstance(error, ServerError):
        return error.error_code in _LEADERLESS
    return isinstance(error, UnreachableError | RequestTimeoutError)


async def _problem(config: AdminConfig, started_ms: int) -> AdminError | None:
    """The error if no controller leads or answers; None if one leads, or if that is unknown."""
    try:
        search = await find_leader(config, started_ms=started_ms)
    except UnreachableError as error:
        return error
    return NoLeaderError(str(search)) if search.is_led is False else None


async def find_leader(config: AdminConfig, *, started_ms: int | None = None) -> QuorumSearch:
    """The first search that finds a leader, or the last one LEADER_WAIT_MS after `started_ms`.

    Raises:
        UnreachableError: all addresses refused connections for REFUSED_WAIT_MS, or none answered for LEADER_WAIT_MS.
    """
    since_ms = now_ms() if started_ms is None else started_ms
    while True:
        search = await search_quorum(config)
        waited_ms = now_ms() - since_ms
        if not search.answering:
            if waited_ms >= (REFUSED_WAIT_MS if search.is_refused else LEADER_WAIT_MS):
                raise UnreachableError(
                    {controller.address: controller.problem or "" for controller in search.asked}
                )
        elif search.is_led is not False or waited_ms >= LEADER_WAIT_MS:
            return search
        await asyncio.sleep(SEARCH_EVERY_MS / 1000)


async def search_quorum(config: AdminConfig) -> QuorumSearch:
    """Ask the bootstrap controllers, and the voters that they know, each by itself: within two ASK_TIMEOUT_MS."""
    asked: dict[Address, AskedController] = {}

    async def visit(address: Address) -> None:
        if address in asked or len(asked) >= ADDRESSES_MAX:
            return
        asked[address] = AskedController(address=str(address), problem=f"{address}: it was not asked")
        controller, others = await _ask(address, config)
        asked[address] = controller
        if config.follow_advertised and not controller.leads:
            await asyncio.gather(*(visit(other) for other in others))

    await asyncio.gather(
        *(visit(bootstrap_controller) for bootstrap_controller in config.bootstrap_controllers)
    )
    return QuorumSearch(asked=tuple(asked.values()))


async def _ask(address: Address, config: AdminConfig) -> tuple[AskedController, tuple[Address, ...]]:
    """What the controller at an address reports, and the addresses of others that it names."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
            connection = await Connection.open(
                address, client_id=config.client_id, timeout_ms=ASK_TIMEOUT_MS, security=config.security
            )
            try:
                return await _ask_over(connection)
            finally:
                await connection.close()
    except TimeoutError:
        problem, is_refused = f"no response from {address} in {ASK_TIMEOUT_MS} ms", False
    except (ConnectionFailedError, RequestTimeoutError) as error:
        problem, is_refused = str(error), isinstance(error.__cause__, ConnectionRefusedError)
    except AdminError:
        return AskedController(address=str(address)), ()  # a server is there, and refuses more
    return AskedController(address=str(address), problem=problem, is_refused=is_refused), ()


async def _ask_over(connection: Connection) -> tuple[AskedController, tuple[Address, ...]]:
    versions = api_versions_of(await connection.negotiate(ASK_TIMEOUT_MS))
    quorum = await connection.request(describe_quorum_request(), ASK_TIMEOUT_MS)
    partition = next(iter(metadata_partitions(quorum)), None)
    code = quorum.error_code if partition is None else partition.error_code
    leads = {ErrorCode.none: True, ErrorCode.not_leader_or_follower: False}.get(code)
    cluster_id, (node_id, configs) = await asyncio.gather(_cluster_id(connection), _configs(connection))
    voters = {
        node.node_id: tuple(Address(listener.host, listener.port) for listener in node.listeners)
        for node in quorum.nodes
    } or _static_voters(configs.get(_STATIC_VOTERS) or "")
    others = (at for addresses in voters.values() for at in addresses)
    asked = AskedController(
        address=str(connection.address),
        node_id=node_id,
        cluster_id=cluster_id,
        leads=leads,
        follows=partition is not None
        and leads is not True
        and bool(quorum.nodes)
        and partition.leader_id >= 0,
        epoch=-1 if partition is None else partition.leader_epoch,
        voters={voter_id: tuple(map(str, addresses)) for voter_id, addresses in voters.items()},
        # Stock Kafka reports leader 0 with this error, Quorate none with -1.
        is_empty=leads is False and not voters and partition is not None and partition.leader_id < 0,
        features=versions.features,
    )
    return asked, (*others, *_listed(configs.get(_BOOTSTRAP_SERVERS) or ""))


async def _cluster_id(connection: Connection) -> str | None:
    """The id of the controller's cluster; None without a response in time."""
    with suppress(AdminError):
        response = await connection.request(
            describe_cluster_request(is_to_controllers=True), DETAILS_TIMEOUT_MS
        )
        return response.cluster_id if response.error_code is ErrorCode.none else None
    return None


async def _configs(connection: Connection) -> tuple[int | None, Mapping[str, str | None]]:
    """The controller's id, None without a response in time, and what it is configured with.

    Its error message for the id of another node has its own id.
    """
    with suppress(AdminError):
        response = await connection.request(node_question([_UNUSED_ID]), DETAILS_TIMEOUT_MS)
        found = _OWN_ID.search(response.results[0].error_message or "") if response.results else None
        if found is None:
            return None, {}
        node_id = int(found[1])
        question = node_question([node_id], (_STATIC_VOTERS, _BOOTSTRAP_SERVERS))
        response = await connection.request(question, DETAILS_TIMEOUT_MS)
        return node_id, {
            config.name: config.value for result in response.results for config in result.configs
        }
    return None, {}


def _static_voters(text: str) -> Mapping[int, tuple[Address, ...]]:
    """The voters of `id@host:port,...`."""
    pairs = (part.strip().partition("@") for part in text.split(",") if "@" in part)
    return {int(node_id): _listed(address) for node_id, _, address in pairs if node_id.isdecimal()}


def _listed(text: str) -> tuple[Address, ...]:
    """The addresses of `host:port,...`; invalid ones are left out: they are in the config of another node."""
    found = []
    for part in text.split(","):
        with suppress(ValueError):
            found.append(Address.parse(part))
    return tuple(found)


def now_ms() -> int:
    """The event loop's clock."""
    return int(asyncio.get_running_loop().time() * 1000)
