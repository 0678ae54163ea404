"""`quorate lake tail` at a stock controller's SASL_SSL listener, as its users type it."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kit.cluster import DIE_WITH_PARENT
from kit.java.cluster import JavaCluster
from kit.lake.lakes import ingest_into, stored_lines
from pyspark.sql import SparkSession
from pyspark_quorate.source.follow_feed import FollowError
from pyspark_quorate.source.stream import QuorumStreamReader
from quorate_admin.client import AdminClient
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_operator.runtime.local.layout import QUORATE
from quorate_protocol.kafka.enums import AclOperation, ResourceType

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TABLES = "membership,leadership"
JOB_TIMEOUT_S = 300


def tail(cluster: JavaCluster, lake: Path, properties: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`quorate lake tail --available-now` to its end, with these properties of a client."""
    file = cluster.client_config(lake.name, properties)
    command = [*DIE_WITH_PARENT, *QUORATE, "lake", "tail", "--available-now", "--to", str(lake), "-o", "json"]
    command += ["--bootstrap-controller", cluster.sasl_controllers, "--command-config", str(file)]
    command += ["--tables", TABLES, "--master", "local[2]"]
    return subprocess.run(command, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)


def test_a_secured_quorum_is_tailed(
    spark: SparkSession, new_java_cluster: Callable[..., JavaCluster], tmp_path: Path
) -> None:
    """`--command-config` is all that a secured quorum needs, and a wrong password is one line."""
    cluster = new_java_cluster(controllers=1, brokers=0)
    cluster.start(*cluster.controllers)
    cluster.await_quorum()
    ran = tail(cluster, tmp_path / "tailed", cluster.sasl_properties())
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    reported: dict[str, Any] = json.loads(ran.stdout)
    assert (reported["clusters"], reported["batches"]) == (1, 1)

    refused = tail(cluster, tmp_path / "refused", cluster.sasl_properties(password="wrong"))
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"error: following {cluster.sasl_controllers} ended: ")
    assert "uthentication failed" in line
    assert "wrong" not in line

    cluster.kill(*cluster.controllers)
    ingest_into(spark, tmp_path / "read", cluster.data(3000), tables=TABLES)
    tailed = stored_lines(tmp_path / "tailed", TABLES)
    assert tailed == stored_lines(tmp_path / "read", TABLES)
    assert all(tailed.values())


def test_an_observer_needs_two_permissions(new_java_cluster: Callable[..., JavaCluster]) -> None:
    """Following a log needs CLUSTER_ACTION and, for the cluster id, ALTER."""
    cluster = new_java_cluster(controllers=1, brokers=0)
    cluster.start(*cluster.controllers)
    cluster.await_quorum()
    for allowed, missing in (
        (None, "ALTER on the cluster"),
        (AclOperation.ALTER, "CLUSTER_ACTION on the cluster"),
        (AclOperation.CLUSTER_ACTION, None),
    ):
        if allowed is not None:
            asyncio.run(allow(cluster, "alice", allowed))
        if missing is None:
            assert followed(cluster, "alice") > 0
        else:
            with pytest.raises(FollowError, match=missing):
                followed(cluster, "alice")


def followed(cluster: JavaCluster, user: str) -> int:
    """How many offsets a stream of a user plans up to what is committed."""
    properties = {f"config.{name}": value for name, value in cluster.sasl_properties(user).items()}
    reader = QuorumStreamReader({"bootstrapControllers": cluster.sasl_controllers, **properties})
    try:
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        return int(reader.latestOffset(start, reader.getDefaultReadLimit())["offset"])
    finally:
        reader.stop()


async def allow(cluster: JavaCluster, user: str, operation: AclOperation) -> None:
    """Let a user do this on the cluster."""
    binding = AclBinding(
        pattern=ResourcePattern(resource_type=ResourceType.CLUSTER, name="kafka-cluster"),
        entry=AccessControlEntry(principal=f"User:{user}", operation=operation),
    )
    async with AdminClient(bootstrap_controllers=cluster.bootstrap_controllers.split(",")) as client:
        (await client.create_acls([binding])).raise_any()
