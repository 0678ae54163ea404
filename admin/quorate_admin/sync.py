"""SyncAdminClient: the AdminClient for code without an event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from quorate_admin.client import AdminClient
from quorate_admin.config import Address, AdminConfig

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _blocking(
    method: Callable[Concatenate[AdminClient, _Parameters], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate["SyncAdminClient", _Parameters], _Result]:
    """The same method, which blocks until the response is there."""

    def call(self: "SyncAdminClient", /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        return self._run(method(self._client, *args, **kwargs))

    update_wrapper(call, method)
    return call


class SyncAdminClient:
    """An AdminClient whose methods block.

    Its event loop runs in a thread of its own, so that it also works where another loop is running, for instance in
    a notebook. Threads may share a client. Close it, or use it with `with`.
    """

    def __init__(
        self,
        config: AdminConfig | None = None,
        *,
        bootstrap_servers: Sequence[str | Address] = (),
        bootstrap_controllers: Sequence[str | Address] = (),
        **overrides: Any,
    ) -> None:
        self._client = AdminClient(
            config,
            bootstrap_servers=bootstrap_servers,
            bootstrap_controllers=bootstrap_controllers,
            **overrides,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="quorate-admin", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and stop the thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def cluster_id(self) -> str | None:
        """See AdminClient.cluster_id."""
        return self._client.cluster_id

    @property
    def misrouted_connections(self) -> int:
        """See AdminClient.misrouted_connections."""
        return self._client.misrouted_connections

    @property
    def rebootstraps(self) -> int:
        """See AdminClient.rebootstraps."""
        return self._client.rebootstraps

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: cancel the operation
            raise

    add_raft_voter = _blocking(AdminClient.add_raft_voter)
    alter_client_quotas = _blocking(AdminClient.alter_client_quotas)
    alter_configs = _blocking(AdminClient.alter_configs)
    alter_partition_reassignments = _blocking(AdminClient.alter_partition_reassignments)
    alter_replica_log_dirs = _blocking(AdminClient.alter_replica_log_dirs)
    alter_replica_log_dirs_at = _blocking(AdminClient.alter_replica_log_dirs_at)
    alter_user_scram_credentials = _blocking(AdminClient.alter_user_scram_credentials)
    create_acls = _blocking(AdminClient.create_acls)
    create_delegation_token = _blocking(AdminClient.create_delegation_token)
    create_partitions = _blocking(AdminClient.create_partitions)
    create_topics = _blocking(AdminClient.create_topics)
    delete_acls = _blocking(AdminClient.delete_acls)
    delete_topics = _blocking(AdminClient.delete_topics)
    describe_acls = _blocking(AdminClient.describe_acls)
    describe_client_quotas = _blocking(AdminClient.describe_client_quotas)
    describe_cluster = _blocking(AdminClient.describe_cluster)
    describe_configs = _blocking(AdminClient.describe_configs)
    describe_delegation_tokens = _blocking(AdminClient.describe_delegation_tokens)
    describe_features = _blocking(AdminClient.describe_features)
    describe_log_dirs = _blocking(AdminClient.describe_log_dirs)
    describe_log_dirs_at = _blocking(AdminClient.describe_log_dirs_at)
    describe_metadata_quorum = _blocking(AdminClient.describe_metadata_quorum)
    describe_replica_log_dirs = _blocking(AdminClient.describe_replica_log_dirs)
    describe_topics = _blocking(AdminClient.describe_topics)
    describe_user_scram_credentials = _blocking(AdminClient.describe_user_scram_credentials)
    elect_leaders = _blocking(AdminClient.elect_leaders)
    expire_delegation_token = _blocking(AdminClient.expire_delegation_token)
    incremental_alter_configs = _blocking(AdminClient.incremental_alter_configs)
    list_config_resources = _blocking(AdminClient.list_config_resources)
    list_groups = _blocking(AdminClient.list_groups)
    list_partition_reassignments = _blocking(AdminClient.list_partition_reassignments)
    list_topics = _blocking(AdminClient.list_topics)
    is_node_at = _blocking(AdminClient.is_node_at)
    node_api_versions = _blocking(AdminClient.node_api_versions)
    refresh_controller = _blocking(AdminClient.refresh_controller)
    register_controller = _blocking(AdminClient.register_controller)
    remove_raft_voter = _blocking(AdminClient.remove_raft_voter)
    renew_delegation_token = _blocking(AdminClient.renew_delegation_token)
    unregister_broker = _blocking(AdminClient.unregister_broker)
    unregister_controller = _blocking(AdminClient.unregister_controller)
    update_features = _blocking(AdminClient.update_features)
