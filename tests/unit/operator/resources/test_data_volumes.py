"""The volumes of brokers as objects: claims, mounts, log directories, and what restarts a pod."""

from typing import Any

import pytest
from kit.desired_cluster import Cluster, Make
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.data_volumes import volume_claim

THREE = "storage: {volumes: [{id: 2, size: 2Gi, className: slow}, {id: 0, size: 9Gi}, {id: 1, size: 1Gi}]}"


def directories_of(cluster: Cluster) -> tuple[str | None, str | None]:
    """The properties of broker 0 about its directories."""
    text = config_map(cluster.context, cluster.desired, cluster.node(0), {})["data"]["server.properties"]
    lines = dict(line.partition("=")[::2] for line in text.splitlines())
    return lines.get("log.dirs"), lines.get("metadata.log.dir")


def claims_in(spec: dict[str, Any]) -> dict[str, str]:
    """The names of a pod's claims by the name of the volume."""
    return {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["volumes"]
        if "persistentVolumeClaim" in volume
    }


def test_each_volume_has_a_claim_a_mount_and_a_directory(make: Make) -> None:
    """Formatter and broker find every volume, and the metadata log stays on volume 0."""
    cluster = make(brokers=THREE)
    spec = cluster.pod(0)["spec"]
    assert claims_in(spec) == {
        "data": "data-brokers-0",
        "data-1": "data-1-brokers-0",
        "data-2": "data-2-brokers-0",
    }
    for container in (spec["containers"][0], spec["initContainers"][0]):
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert [mounts[name] for name in claims_in(spec)] == [
            "/var/lib/quorate",
            "/var/lib/quorate-1",
            "/var/lib/quorate-2",
        ]
    first = "/var/lib/quorate/data"
    assert directories_of(cluster) == (f"{first},/var/lib/quorate-1/data,/var/lib/quorate-2/data", first)
    claim = volume_claim(cluster.context, cluster.node(0), 2)
    assert claim["metadata"]["name"] == "data-2-brokers-0"
    assert claim["metadata"]["labels"]["quorate.dev/volume"] == "2"
    assert claim["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    assert claim["spec"]["storageClassName"] == "slow"
    assert "quorate.dev/volume" not in volume_claim(cluster.context, cluster.node(0))["metadata"]["labels"]


def test_a_single_volume_goes_on_as_volume_0(make: Make) -> None:
    """Neither an update of the operator nor another way to write it restarts a pod."""
    before, explicit = (
        make(brokers="storage: {size: 9Gi}"),
        make(brokers="storage: {volumes: [{id: 0, size: 9Gi}]}"),
    )
    assert before.pod(0)["spec"] == explicit.pod(0)["spec"] == make().pod(0)["spec"]
    assert before.node(0).revision == explicit.node(0).revision
    assert "storage.volumes" not in before.node(0).revision
    assert directories_of(explicit) == ("/var/lib/quorate/data", None)
    assert volume_claim(before.context, before.node(0)) == volume_claim(explicit.context, explicit.node(0))


@pytest.mark.parametrize("used", [{0}, {0, 1}, {0, 1, 2, 5}])
def test_what_a_node_uses_is_what_is_there(make: Make, used: set[int]) -> None:
    """A volume is used from when it exists to when it is released, whatever the manifest says."""
    cluster, all_used = make(brokers=THREE, volumes={0: frozenset(used)}), make(brokers=THREE)
    assert len(claims_in(cluster.pod(0)["spec"])) == len(used)
    directories, _ = directories_of(cluster)
    assert directories is not None
    assert len(directories.split(",")) == len(used)
    differing = {
        part
        for part in cluster.node(0).revision.keys() | all_used.node(0).revision.keys()
        if cluster.node(0).revision.get(part) != all_used.node(0).revision.get(part)
    }
    assert differing == {"storage.volumes"}
