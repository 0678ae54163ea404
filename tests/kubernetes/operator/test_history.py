"""spec.history under a real API server: a real operator, real controllers, and the side cars that ship their logs."""

from pathlib import Path

import kubernetes.client
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated
from quorate_protocol.records.batch import scan_batches

FIRST, SECOND, THIRD = NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
HISTORY = {"storage": {"size": "1Gi"}, "schedule": "0 0 1 1 *"}
SMALL_SEGMENTS = {
    "log.index.size.max.bytes": "16384",
    "metadata.log.segment.ms": "2000",  # in place of what segmentInterval asks for
}


def shipped(operated: Operated) -> dict[int, list[Path]]:
    """The segments on the volume of the history, by controller."""
    claims = operated.core.list_namespaced_persistent_volume_claim(operated.namespace).items
    uids = [claim.metadata.uid for claim in claims if claim.metadata.name == f"history-{QUORUM}"]
    if not uids:
        return {}
    (root,) = (operated.agent.directory / "volumes" / uid for uid in uids)
    found: dict[int, list[Path]] = {}
    for path in root.glob("shipped/*/*/__cluster_metadata-0/*.log"):
        found.setdefault(int(path.parent.parent.name), []).append(path)
    return {node_id: sorted(paths) for node_id, paths in found.items()}


def jobs(operated: Operated) -> list[str]:
    """The names of the CronJobs."""
    api = kubernetes.client.BatchV1Api(operated.core.api_client)
    return [job.metadata.name for job in api.list_namespaced_cron_job(operated.namespace).items]


def containers(operated: Operated) -> set[tuple[str, ...]]:
    """What runs in the pods."""
    pods = operated.core.list_namespaced_pod(operated.namespace).items
    return {tuple(container.name for container in pod.spec.containers) for pod in pods}


def test_history_is_turned_on_and_off_in_a_quorum_that_serves(operated: Operated) -> None:
    """On, it keeps every controller's log; off, nothing of it runs and nothing of it is lost."""
    operated.create(config=SMALL_SEGMENTS)
    operated.start_operator()
    operated.wait_settled(*NODES)
    assert containers(operated) == {("node",)}
    assert jobs(operated) == []

    operated.patch(history=HISTORY)
    operated.wait(lambda: containers(operated) == {("node", "ship")}, "a side car in each pod")
    operated.wait_settled(*NODES)
    assert jobs(operated) == [QUORUM]
    assert operated.status()["history"] == {}
    assert len(operated.claims()) == 4
    operated.wait(
        lambda: all(len(shipped(operated).get(node_id, ())) >= 2 for node_id in NODES),
        "segments of all three",
    )
    for node_id, paths in shipped(operated).items():
        expected = int(paths[0].stem)
        for path in paths:
            for header in scan_batches(path.read_bytes()):
                assert header.base_offset == expected, (node_id, path)
                expected = header.last_offset + 1

    operated.patch(history=None)
    operated.wait(lambda: containers(operated) == {("node",)}, "no side car any more")
    operated.wait_settled(*NODES)
    operated.wait(lambda: not jobs(operated), "the CronJob to go")
    operated.wait(lambda: "history" not in operated.status(), "a status without it")
    kept = {node_id: len(paths) for node_id, paths in shipped(operated).items()}
    assert f"history-{QUORUM}" in operated.claims()

    operated.delete()
    operated.wait(lambda: operated.resource() is None and not operated.pods(), "the cluster to go")
    assert f"history-{QUORUM}" in operated.claims()
    assert {node_id: len(paths) for node_id, paths in shipped(operated).items()} == kept
