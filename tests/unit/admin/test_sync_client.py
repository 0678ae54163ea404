"""The blocking client: the same methods, in a loop of its own."""

import asyncio
import inspect
import threading

import pytest
from kit.fake_cluster import CLUSTER_ID, FakeCluster, response_to
from quorate_admin.client import AdminClient
from quorate_admin.errors import ServerError
from quorate_admin.sync import SyncAdminClient
from quorate_protocol.errors import ErrorCode


def test_each_method_is_there() -> None:
    for name, member in inspect.getmembers(AdminClient):
        if name.startswith("_"):
            continue
        own = getattr(SyncAdminClient, name, None)
        assert own is not None, f"add `{name} = _blocking(AdminClient.{name})` to SyncAdminClient"
        if inspect.iscoroutinefunction(member) and name != "close":
            assert inspect.signature(own) == inspect.signature(member)
            assert own.__doc__ == member.__doc__


async def test_it_blocks_until_the_answer_is_there_and_raises_errors() -> None:
    refusal = response_to("UnregisterBroker", error_code=ErrorCode.broker_id_not_registered)
    async with FakeCluster() as cluster:
        cluster.handle("UnregisterBroker", lambda _: refusal)

        def work() -> str:
            with SyncAdminClient(bootstrap_servers=cluster.bootstrap) as admin:
                with pytest.raises(ServerError, match="BROKER_ID_NOT_REGISTERED"):
                    admin.unregister_broker(7)
                described = admin.describe_cluster()
                assert admin.cluster_id == described.cluster_id
                assert (admin.misrouted_connections, admin.rebootstraps) == (0, 0)
                return described.cluster_id

        assert await asyncio.to_thread(work) == CLUSTER_ID


def test_closed_is_closed_and_no_thread_is_left() -> None:
    before = threading.active_count()
    admin = SyncAdminClient(bootstrap_servers=["127.0.0.1:1"])
    assert threading.active_count() == before + 1
    admin.close()
    admin.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="closed"):
        admin.describe_cluster()
