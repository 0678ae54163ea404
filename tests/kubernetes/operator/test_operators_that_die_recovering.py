"""Operators come and go while a lost quorum is rebuilt from the disk of its survivor."""

from typing import Any

import pytest
from kit.operators.dying_operators import asking, configure_brokers, final_state, kill_after_each_step
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated
from quorate_operator.resources.names import LABEL_CLUSTER, LABEL_PURPOSE
from quorate_operator.resources.pods import PURPOSE_TASK

SURVIVOR, *LOST = NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
# The survivor stops, is rebuilt and starts; the others are created, start, and become voters one by one.
RECOVERY_KILLS_MIN = 6
# Each operator takes seconds to start where others use the processors.
TIMEOUT_S = 900


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_a_quorum_is_rebuilt(operated: Operated) -> None:
    """What the survivor has is kept, and nothing is rebuilt by what is left of an earlier time."""
    operated.create()
    operated.start_operator()
    operated.wait_settled(*NODES)
    cluster_id, disk = operated.status()["clusterId"], operated.voters()[SURVIVOR]
    configure_brokers(asking(operated), log_retention_ms="4711")
    first_lost = _lose(operated)
    operated.start_operator()
    operated.wait(lambda: _refused(operated) == ["QuorumLost"], "the loss to be reported")
    request = _request(operated)
    named = f"survivor: {SURVIVOR}, clusterId: {cluster_id}, leaderEpoch: {request['leaderEpoch']}"
    assert named in operated.status()["refusals"][0]["message"]
    assert operated.pods() == [f"{QUORUM}-{SURVIVOR}"], "nothing was done about it"
    operated.patch(recovery=request)
    operated.wait(
        lambda: _has_recovered(operated, disk, first_lost), "another quorum with the survivor's disk"
    )
    expected = final_state(operated, *_other_disks(operated))
    assert expected["configs"]["log.retention.ms"] == "4711"

    _leave_a_task(operated)
    second_lost = _lose(operated)
    operated.start_operator()
    operated.wait(lambda: _refused(operated) == ["QuorumLost"], "the second loss to be reported")
    assert "which is another loss than this one" in operated.status()["refusals"][0]["message"]
    started = {f"{QUORUM}-{node_id}" for node_id in LOST}.intersection(operated.pods())
    assert not started, "the request was for the first loss"
    operated.operators[-1].kill()
    assert _request(operated)["leaderEpoch"] > request["leaderEpoch"]
    operated.patch(recovery=_request(operated))
    kills = kill_after_each_step(operated, lambda: _has_recovered(operated, disk, second_lost))
    assert final_state(operated, *_other_disks(operated)) == expected
    assert operated.status()["clusterId"] == cluster_id
    assert kills >= RECOVERY_KILLS_MIN


def _request(operated: Operated) -> dict[str, Any]:
    """The request to recover from the loss that the status reports."""
    status = operated.status()
    epoch = status["formation"]["leaderEpoch"]
    return {"survivor": SURVIVOR, "clusterId": status["clusterId"], "leaderEpoch": epoch}


def _lose(operated: Operated) -> list[str]:
    """Wipe the disks of all controllers but the survivor, which has all committed records. Returns them."""
    operated.wait(lambda: _has_everything(operated), "the survivor to have all that is committed")
    operated.operators[-1].kill()
    lost = _other_disks(operated)
    for node_id in LOST:
        name = f"{QUORUM}-{node_id}"
        operated.core.delete_namespaced_persistent_volume_claim(f"data-{name}", operated.namespace)
        operated.core.delete_namespaced_pod(name, operated.namespace, grace_period_seconds=0)
    operated.wait(lambda: operated.claims() == [f"data-{QUORUM}-{SURVIVOR}"], "the disks to be gone")
    return lost


def _leave_a_task(operated: Operated) -> None:
    """As if an operator had been killed before it saw that a quorum was rebuilt, on another day."""
    name = f"{QUORUM}-{SURVIVOR}"
    allowed = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    command = ["quorate", "controller", "rebuild-quorum", "--help"]
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}},
        {"name": "config", "configMap": {"name": name}},
    ]
    body = {
        "metadata": {
            "name": f"{name}-rebuild-quorum",
            "labels": {LABEL_CLUSTER: QUORUM, LABEL_PURPOSE: PURPOSE_TASK},
        },
        "spec": {
            "restartPolicy": "Never",
            "volumes": volumes,
            "containers": [
                {"name": "task", "image": "quorate:test", "command": command, "securityContext": allowed}
            ],
        },
    }
    operated.core.create_namespaced_pod(operated.namespace, body)

    def has_ended() -> bool:
        pod = operated.core.read_namespaced_pod(f"{name}-rebuild-quorum", operated.namespace)
        return pod.status.phase == "Succeeded"

    operated.wait(has_ended, "the pod of a task to have ended")


def _has_everything(operated: Operated) -> bool:
    quorum = asking(operated)(lambda client: client.describe_metadata_quorum())
    ends = {voter.node_id: voter.log_end_offset for voter in quorum.voters}
    return ends[SURVIVOR] >= quorum.high_watermark > 0


def _has_recovered(operated: Operated, disk: str, lost: list[str]) -> bool:
    return (
        operated.settled(*NODES)
        and operated.voters()[SURVIVOR] == disk
        and not set(_other_disks(operated)) & set(lost)
        and not _refused(operated)
    )


def _other_disks(operated: Operated) -> list[str]:
    return [operated.voters()[node_id] for node_id in LOST]


def _refused(operated: Operated) -> list[str]:
    return [refusal["code"] for refusal in operated.refusals()]
