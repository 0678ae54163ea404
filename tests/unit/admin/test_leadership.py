"""The search for the leader of a quorum, at each controller by itself."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kit.fake_cluster import HANG_UP, FakeCluster, nested, quorum_response, response_to
from quorate_admin import leadership
from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import NoLeaderError, ServerError, UnreachableError
from quorate_protocol.errors import ErrorCode

NO_METADATA = "There is no finalized MetadataVersion, so direct-to-controller communication is not supported."
FREE = "127.0.0.1:9"
"""No process listens at the port of `discard`."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for milliseconds: the order of events counts, not the time."""
    for name in ("REFUSED_WAIT_MS", "LEADER_WAIT_MS", "SEARCH_EVERY_MS"):
        monkeypatch.setattr(leadership, name, 50)


def config(*addresses: str, **fields: Any) -> AdminConfig:
    return replace(AdminConfig.from_properties({}, bootstrap_controllers=addresses), **fields)


def quorum(error_code: ErrorCode, voters: Mapping[int, str] | None = None, leader_id: int = -1) -> Any:
    """A response to DescribeQuorum, with the addresses of voters by id."""
    return quorum_response(endpoints=voters, error_code=error_code, leader_id=leader_id, leader_epoch=3)


def configs_of(node_id: int, **values: str) -> Any:
    """A handler of DescribeConfigs of a node with these configs, `_` for `.` in their names."""

    def handle(request: Any) -> Any:
        (resource,) = request.body.resources
        fields = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        if resource.resource_name != str(node_id):
            result = nested(
                "DescribeConfigs",
                "DescribeConfigsResult",
                error_code=ErrorCode.invalid_request,
                error_message=f"Unexpected broker id, expected {node_id} or empty string, but received -1",
                **fields,
            )
        else:
            result = nested(
                "DescribeConfigs",
                "DescribeConfigsResult",
                configs=tuple(
                    nested(
                        "DescribeConfigs",
                        "DescribeConfigsResourceResult",
                        name=name.replace("_", "."),
                        value=value,
                    )
                    for name, value in values.items()
                ),
                **fields,
            )
        return response_to("DescribeConfigs", results=(result,))

    return handle


def without_metadata(cluster: FakeCluster) -> None:
    """Have the controllers answer as those that have found no leader since their start."""
    cluster.finalized_features, cluster.finalized_features_epoch = {}, -1
    cluster.handle(
        "DescribeCluster",
        lambda _: response_to(
            "DescribeCluster", error_code=ErrorCode.unsupported_version, error_message=NO_METADATA
        ),
    )


async def test_a_survivor_names_the_voters_that_it_knows() -> None:
    async with FakeCluster([1], is_controllers=True) as cluster:
        (address,) = cluster.bootstrap
        voters = {1: address, 2: FREE, 3: "127.0.0.1:11"}
        cluster.handle("DescribeQuorum", lambda _: quorum(ErrorCode.not_leader_or_follower, voters))
        cluster.handle("DescribeConfigs", configs_of(1))
        found = await leadership.find_leader(config(address))
    assert (found.is_led, found.silent_voters, found.cluster_id) == (False, (2, 3), "fake-cluster-1234567-A")
    assert [controller.node_id for controller in found.answering] == [1]


@pytest.mark.parametrize(
    ("configs", "silent_voters", "silent_addresses"),
    [
        ({"controller_quorum_voters": "1@ADDRESS,2@127.0.0.1:9"}, (2,), ()),
        ({"controller_quorum_bootstrap_servers": "ADDRESS,127.0.0.1:9,no-address"}, (), (FREE,)),
        ({}, (), ()),
    ],
)
async def test_stock_controllers_are_asked_for_their_configuration(
    configs: dict[str, str], silent_voters: tuple[int, ...], silent_addresses: tuple[str, ...]
) -> None:
    async with FakeCluster([1], is_controllers=True) as cluster:
        (address,) = cluster.bootstrap
        configs = {name: value.replace("ADDRESS", address) for name, value in configs.items()}
        cluster.handle("DescribeQuorum", lambda _: quorum(ErrorCode.not_leader_or_follower))
        cluster.handle("DescribeConfigs", configs_of(1, **configs))
        found = await leadership.find_leader(config(address))
    assert (found.is_led, found.silent_voters, found.silent_addresses) == (
        False,
        silent_voters,
        silent_addresses,
    )


async def test_a_lost_disk_differs_from_a_controller_of_stock_kafka() -> None:
    for leader_id, empty in ((-1, (2,)), (0, ())):
        async with FakeCluster([1, 2], is_controllers=True) as cluster:
            first, second = cluster.nodes.values()
            described = quorum(ErrorCode.not_leader_or_follower, {1: first.address, 2: second.address})
            bare = quorum(ErrorCode.not_leader_or_follower, leader_id=leader_id)
            first.handlers["DescribeQuorum"] = lambda _, response=described: response
            second.handlers["DescribeQuorum"] = lambda _, response=bare: response
            first.handlers["DescribeConfigs"] = configs_of(1)
            second.handlers["DescribeConfigs"] = configs_of(2)
            found = await leadership.search_quorum(config(first.address))
        assert (found.is_led, found.silent_voters, found.empty_voters) == (False, (), empty)


async def test_a_leader_is_found_at_an_address_that_another_controller_names() -> None:
    async with FakeCluster([1, 2], is_controllers=True) as cluster:
        first, second = cluster.nodes.values()
        voters = {1: first.address, 2: second.address}
        first.handlers["DescribeQuorum"] = lambda _: quorum(ErrorCode.not_leader_or_follower, voters)
        second.handlers["DescribeQuorum"] = lambda _: quorum(ErrorCode.none, voters, leader_id=2)
        first.handlers["DescribeConfigs"] = configs_of(1)
        second.handlers["DescribeConfigs"] = configs_of(2)
        assert (await leadership.search_quorum(config(first.address))).is_led
        alone = await leadership.search_quorum(config(first.address, follow_advertised=False))
        assert (alone.is_led, len(alone.asked)) == (False, 1)


async def test_a_leader_that_only_its_follower_reaches_counts() -> None:
    """Nothing false about a quorum behind a firewall."""
    async with FakeCluster([1], is_controllers=True) as cluster:
        voters = {1: cluster.bootstrap[0], 2: FREE}
        cluster.handle(
            "DescribeQuorum", lambda _: quorum(ErrorCode.not_leader_or_follower, voters, leader_id=2)
        )
        cluster.handle("DescribeConfigs", configs_of(1))
        assert (await leadership.find_leader(config(*cluster.bootstrap))).is_led


async def test_who_may_not_ask_learns_nothing() -> None:
    refusal = response_to("DescribeQuorum", error_code=ErrorCode.cluster_authorization_failed)
    async with FakeCluster([1], is_controllers=True) as cluster:
        cluster.handle("DescribeQuorum", lambda _: refusal)
        cluster.handle("DescribeConfigs", configs_of(1))
        assert (await leadership.find_leader(config(*cluster.bootstrap))).is_led is None
        cluster.handle("DescribeQuorum", lambda _: HANG_UP)
        with pytest.raises(UnreachableError, match="closed"):
            await leadership.find_leader(config(*cluster.bootstrap))


async def test_nobody_who_listens_is_reported() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9: Connection refused"):
        await leadership.find_leader(config(FREE))


async def _until_led(asked: AdminConfig, call: Any, *, is_patient: bool = False) -> Any:
    async with AdminClient(asked) as admin:
        working = asyncio.ensure_future(call(admin))
        return await leadership.until_led(asked, working, leadership.now_ms(), is_patient=is_patient)


async def test_a_request_ends_when_there_is_no_leader() -> None:
    """The client does not wait a minute to report which voters are missing."""
    async with FakeCluster([1], is_controllers=True) as cluster:
        (address,) = cluster.bootstrap
        voters = {1: address, 2: FREE, 3: FREE}
        cluster.handle("DescribeQuorum", lambda _: quorum(ErrorCode.not_leader_or_follower, voters))
        cluster.handle("DescribeConfigs", configs_of(1))
        with pytest.raises(NoLeaderError, match=r"^no leader; voters 2, 3 do not answer \(no connection to"):
            await _until_led(config(address), lambda admin: admin.describe_metadata_quorum())
        without_metadata(cluster)
        with pytest.raises(NoLeaderError, match=r"^no leader; voters 2, 3 do not answer"):
            await _until_led(config(address), lambda admin: admin.describe_cluster())
        patient = AdminConfig.from_properties(
            {"default.api.timeout.ms": "200", "request.timeout.ms": "200"}, bootstrap_controllers=[address]
        )
        with pytest.raises(NoLeaderError):
            await _until_led(patient, lambda admin: admin.describe_cluster(), is_patient=True)


async def test_other_errors_stay_as_they_are() -> None:
    async with FakeCluster([1], is_controllers=True) as cluster:
        cluster.handle(
            "DescribeQuorum", lambda _: quorum(ErrorCode.none, {1: cluster.bootstrap[0]}, leader_id=1)
        )
        cluster.handle("DescribeConfigs", configs_of(1))
        cluster.handle(
            "UnregisterController",
            lambda _: response_to("UnregisterController", error_code=ErrorCode.unsupported_version),
        )
        with pytest.raises(ServerError, match="UNSUPPORTED_VERSION"):
            await _until_led(config(*cluster.bootstrap), lambda admin: admin.unregister_controller(9))
        cluster.handle("DescribeQuorum", lambda _: quorum(ErrorCode.not_leader_or_follower))
        cluster.handle(
            "UnregisterController",
            lambda _: response_to("UnregisterController", error_code=ErrorCode.invalid_request),
        )
        with pytest.raises(ServerError, match="INVALID_REQUEST"):
            await _until_led(config(*cluster.bootstrap), lambda admin: admin.unregister_controller(9))
