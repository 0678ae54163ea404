"""list_groups: every broker is asked for the groups that it coordinates."""

import pytest
from kit.fake_cluster import FakeCluster, nested, response_to
from quorate_admin.client import AdminClient
from quorate_admin.errors import ServerError, UnsupportedEndpointError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.wire.server import Request


def listed(*group_ids: str, error_code: ErrorCode = ErrorCode.none) -> object:
    """The answer of a broker."""
    groups = (
        nested("ListGroups", "ListedGroup", group_id=group_id, group_type="consumer", group_state="Stable")
        for group_id in group_ids
    )
    return response_to("ListGroups", groups=tuple(groups), error_code=error_code)


async def test_groups_of_all_brokers_are_listed_once() -> None:
    async with FakeCluster([1, 2]) as cluster, AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        cluster.nodes[1].handlers["ListGroups"] = lambda _: listed("b", "c")
        cluster.nodes[2].handlers["ListGroups"] = lambda _: listed("a", "b")
        groups = await admin.list_groups()
    assert [group.group_id for group in groups] == ["a", "b", "c"]
    assert groups[0].group_type == "consumer"
    assert groups[0].group_state == "Stable"


async def test_a_coordinator_that_is_loading_is_asked_again() -> None:
    codes = [ErrorCode.coordinator_load_in_progress, ErrorCode.none]

    def next_response(_: Request) -> object:
        return listed("a", error_code=codes.pop(0))

    async with FakeCluster() as cluster, AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        cluster.handle("ListGroups", next_response)
        assert [group.group_id for group in await admin.list_groups()] == ["a"]


async def test_a_refusal_is_raised() -> None:
    async with FakeCluster([1, 2]) as cluster, AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        cluster.nodes[1].handlers["ListGroups"] = lambda _: listed("a")
        cluster.nodes[2].handlers["ListGroups"] = lambda _: listed(
            error_code=ErrorCode.group_authorization_failed
        )
        with pytest.raises(ServerError, match="GROUP_AUTHORIZATION_FAILED"):
            await admin.list_groups()


async def test_controllers_know_no_groups() -> None:
    """A clear refusal (KIP-919)."""
    async with (
        FakeCluster([3000], is_controllers=True) as cluster,
        AdminClient(bootstrap_controllers=cluster.bootstrap) as admin,
    ):
        with pytest.raises(UnsupportedEndpointError, match="list_groups"):
            await admin.list_groups()
