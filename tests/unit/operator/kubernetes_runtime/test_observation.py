"""What pods and claims say of a node."""

from dataclasses import replace
from typing import Any

import pytest
from quorate_operator.planning.cluster import Address, NodeState, ObservedVolume, Role, Verification
from quorate_operator.resources.configs import advertised_text
from quorate_operator.resources.data_volumes import DATA_DIRECTORY
from quorate_operator.resources.names import (
    ANNOTATION_ADVERTISED,
    ANNOTATION_VERIFIED,
    LABEL_COMPONENT,
    LABEL_NODE_ID,
    LABEL_POOL,
    LABEL_VOLUME,
)
from quorate_operator.runtime.kubernetes.observation import (
    ANNOTATION_DIRECTORY_ID,
    ANNOTATION_FORMAT,
    ANNOTATION_RELEASED,
    VOLUME,
    NodeObjects,
    by_node,
    growth_refusal,
    is_node_gone,
    is_suspicious,
    observed_node,
    verifications_of,
    verified_text,
    volume_of,
    volumes_in_use,
)

DIRECTORY_ID = "AAAAAAAAAAAAAAAAAAAAAA"
STARTED = "2026-01-01T00:00:00Z"
STARTED_MS = 1_767_225_600_000


def _pod(*, state: dict[str, Any] | None = None, phase: str = "Running", **status: Any) -> dict[str, Any]:
    containers = (
        [] if state is None else [{"name": "node", "ready": False, "restartCount": 4, "state": state}]
    )
    return {
        "metadata": {"name": "quorum-3000", "uid": "u", "creationTimestamp": STARTED, "annotations": {}},
        "spec": {"nodeName": "machine"},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


def _claim(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "data-quorum-3000", "annotations": annotations}}


def _observed(claim: dict[str, Any] | None = None, **parts: Any) -> Any:
    claims = {} if claim is None else {0: claim}
    return observed_node(
        NodeObjects(node_id=3000, role=Role.CONTROLLER, pool="quorum", claims=claims, **parts)
    )


def test_a_claim_alone_is_not_yet_a_node() -> None:
    """A creation that was cut short is done again."""
    config = {"metadata": {"name": "quorum-3000"}}
    assert _observed(claim=_claim()).state is NodeState.ABSENT
    prepared = _claim(**{ANNOTATION_FORMAT: "initial"})
    assert _observed(claim=prepared).state is NodeState.ABSENT
    assert _observed(claim=prepared, config=config).state is NodeState.STOPPED
    formatted = _claim(**{ANNOTATION_DIRECTORY_ID: DIRECTORY_ID})
    assert _observed(claim=formatted).state is NodeState.STOPPED


def test_a_stopped_node_tells_what_it_was_last_started_with() -> None:
    def advertising(item: dict[str, Any], **expected: Address) -> dict[str, Any]:
        item["metadata"]["annotations"] = {ANNOTATION_ADVERTISED: advertised_text(expected)}
        return item

    claim = _claim(**{ANNOTATION_DIRECTORY_ID: DIRECTORY_ID})
    was, now = Address("c0.example.com", 9093), Address("fd00::1", 9093)
    config = advertising({"metadata": {"name": "quorum-3000"}}, CONTROLLER=was)
    created = advertising({"metadata": {"name": "quorum-3000"}})
    assert _observed(claim=claim, config=created).configured == {}
    stopped = _observed(claim=claim, config=config)
    assert (stopped.state, stopped.configured) == (NodeState.STOPPED, {"CONTROLLER": was})
    pod = advertising(_pod(state={"running": {"startedAt": STARTED}}), CONTROLLER=now)
    assert _observed(claim=claim, config=config, pod=pod).configured == {"CONTROLLER": now}


def test_the_format_container_has_the_last_word_on_the_directory_id() -> None:
    other = "BBBBBBBBBBBBBBBBBBBBBB"
    ended = {"terminated": {"exitCode": 0, "message": f"{other}\n"}}
    pod = _pod(initContainerStatuses=[{"name": "format", "state": ended}])
    node = _observed(pod=pod, claim=_claim(**{ANNOTATION_DIRECTORY_ID: DIRECTORY_ID}))
    assert node.directory_id == other


def test_a_claim_that_is_being_deleted_is_another_revision() -> None:
    """A deleted claim is let go by a restart under the quorum's rules."""
    claim = _claim(**{ANNOTATION_DIRECTORY_ID: DIRECTORY_ID})
    pod = _pod(state={"running": {"startedAt": STARTED}})
    assert _observed(pod=pod, claim=claim).revision[VOLUME] == "kept"
    claim["metadata"]["deletionTimestamp"] = STARTED
    assert _observed(pod=pod, claim=claim).revision[VOLUME] == "deleted"


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
            "ImagePullBackOff: no such",
        ),
        ({"terminated": {"exitCode": 3, "message": "error: log.dirs: in use"}}, "log.dirs: in use"),
        (
            {"terminated": {"exitCode": 1, "reason": "Error", "message": "{no json\nerror: a\n\tat b"}},
            "the process ended with status 1, 5 times so far: error: a",
        ),
        (
            {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "INFO all is well"}},
            "the process ended with status 137 (OOMKilled: it needed more memory than its limit), 5 times so far",
        ),
        ({"running": {"startedAt": STARTED}}, None),
    ],
)
def test_what_keeps_a_node_from_starting_is_told(state: dict[str, Any], problem: str | None) -> None:
    node = _observed(pod=_pod(state=state), claim=_claim())
    assert node.state is NodeState.STARTING
    assert (node.problem is None) if problem is None else (problem in (node.problem or ""))


def test_why_a_process_died_is_told_until_the_next_one_is_ready() -> None:
    pod = _pod(state={"running": {"startedAt": STARTED}})
    (status,) = pod["status"]["containerStatuses"]
    status["lastState"] = {"terminated": {"exitCode": 1, "message": "error: no space left\n"}}
    assert _observed(pod=pod, claim=_claim()).problem == (
        "the process ended with status 1, 4 times so far: error: no space left"
    )
    status["ready"] = True
    assert _observed(pod=pod, claim=_claim()).problem is None


def test_how_often_a_process_has_ended_is_counted_alike_between_and_in_its_attempts() -> None:
    ended = {"exitCode": 1, "startedAt": STARTED, "finishedAt": "2026-01-01T00:00:30Z"}
    attempts = (
        {"state": {"terminated": ended}},
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}},
        {"state": {"running": {"startedAt": STARTED}}, "lastState": {"terminated": ended}, "restartCount": 5},
    )
    for attempt in attempts:
        pod = _pod(state={})
        pod["status"]["containerStatuses"][0] |= attempt
        node = _observed(pod=pod, claim=_claim())
        assert node.exits_in_a_row == 5
        assert "5 times so far" in node.problem
    pod["status"]["containerStatuses"][0]["ready"] = True
    assert _observed(pod=pod, claim=_claim()).exits_in_a_row == 0
    waiting = _pod(state={"waiting": {"reason": "ContainerCreating"}})
    waiting["status"]["containerStatuses"][0]["restartCount"] = 0
    assert _observed(pod=waiting, claim=_claim()).exits_in_a_row == 0


def test_ends_are_counted_anew_after_a_long_run() -> None:
    """A broker that ends once in a month is in no crash loop."""
    ended = {"exitCode": 137, "startedAt": "2025-12-01T00:00:00Z", "finishedAt": STARTED}
    pod = _pod(state={"running": {"startedAt": STARTED}})
    pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": ended}
    assert _observed(pod=pod, claim=_claim()).exits_in_a_row == 1


def test_formatting_that_failed_is_told_with_its_error() -> None:
    ended = {"exitCode": 1, "message": "quorate: error: log.dirs: /var/lib: read-only\n"}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    init = {"name": "format", "ready": False, "state": waiting, "lastState": {"terminated": ended}}
    pod = _pod(initContainerStatuses=[init])
    assert _observed(pod=pod, claim=_claim()).problem == (
        "formatting ended with status 1: error: log.dirs: /var/lib: read-only"
    )


def test_a_pod_without_a_running_container_tells_since_when() -> None:
    waiting = _observed(pod=_pod(state={"waiting": {"reason": "PodInitializing"}}), claim=_claim())
    assert (waiting.started_at_ms, waiting.waiting_since_ms) == (None, STARTED_MS)
    running = _observed(pod=_pod(state={"running": {"startedAt": STARTED}}), claim=_claim())
    assert (running.started_at_ms, running.waiting_since_ms) == (STARTED_MS + 999, None), (
        "in whole seconds, what the former process fetched in the same second would be of this one"
    )


@pytest.mark.parametrize("started", [None, False, True])
def test_a_startup_probe_tells_whether_the_ports_have_opened(started: bool | None) -> None:
    pod = _pod(state={"running": {"startedAt": STARTED}})
    pod["status"]["containerStatuses"][0] |= {} if started is None else {"started": started}
    assert _observed(pod=pod, claim=_claim()).has_opened is started


def test_since_when_a_node_answers_is_what_its_probes_report() -> None:
    since = [{"type": "ContainersReady", "status": "True", "lastTransitionTime": STARTED}]
    pod = _pod(state={"running": {"startedAt": STARTED}}, conditions=since)
    assert _observed(pod=pod, claim=_claim()).opened_at_ms is None
    pod["status"]["containerStatuses"][0]["ready"] = True
    assert _observed(pod=pod, claim=_claim()).opened_at_ms == STARTED_MS


def test_an_evicted_pod_has_crashed() -> None:
    node = _observed(pod=_pod(phase="Failed", reason="Evicted", message="disk pressure"), claim=_claim())
    assert node.state is NodeState.CRASHED
    assert node.exit_reason == "Evicted: disk pressure"
    assert node.exited_at_ms is not None


def test_only_a_silent_machine_makes_a_node_unreachable() -> None:
    ready = _pod(state={"running": {"startedAt": STARTED}}, conditions=[{"type": "Ready", "status": "True"}])
    unready = _pod(
        state={"running": {"startedAt": STARTED}}, conditions=[{"type": "Ready", "status": "False"}]
    )
    assert not is_suspicious(ready)
    assert is_suspicious(unready)
    assert is_node_gone(None)
    assert is_node_gone({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    assert not is_node_gone({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})


def test_whom_a_name_led_to_is_read_as_it_was_written() -> None:
    known = tuple(
        Verification(address=Address(host, 9092), node_id=3000, at_ms=7)
        for host in ("b0.example.com", "fd00::1")
    )

    def read(text: str | None) -> tuple[Verification, ...]:
        config = {"metadata": {"annotations": {} if text is None else {ANNOTATION_VERIFIED: text}}}
        return verifications_of(NodeObjects(node_id=3000, role=Role.CONTROLLER, pool="quorum", config=config))

    assert set(read(verified_text(known))) == set(known)
    assert verified_text(()) is None
    assert read(None) == read("no JSON") == read('{"no address": 1}') == read('{"a:1": "yesterday"}') == ()


def test_the_size_of_a_volume_is_that_of_its_claim() -> None:
    def claim(size: str, **status: Any) -> dict[str, Any]:
        return _claim() | {"spec": {"resources": {"requests": {"storage": size}}}, "status": status}

    waits = {"type": "FileSystemResizePending", "status": "True", "message": "Waiting for kubelet"}
    past = {"type": "Resizing", "status": "False"}
    requested = ObservedVolume(directory=DATA_DIRECTORY, requested_bytes=2 * 2**30)
    assert volume_of(0, claim("2Gi")) == requested
    assert volume_of(0, claim("2Gi", capacity={"storage": "1Gi"}, conditions=[past, waits])) == replace(
        requested, capacity_bytes=2**30, progress="FileSystemResizePending: Waiting for kubelet"
    )
    assert volume_of(0, claim("2e9")) == ObservedVolume(directory=DATA_DIRECTORY)
    assert _observed(claim=claim("2Gi")).volumes == {0: requested}


def test_further_claims_of_a_node_are_its_volumes() -> None:
    labels = {LABEL_NODE_ID: "0", LABEL_COMPONENT: "broker", LABEL_POOL: "brokers"}

    def claim(volume: str | None, **metadata: Any) -> dict[str, Any]:
        own = labels if volume is None else labels | {LABEL_VOLUME: volume}
        return {"metadata": {"name": f"claim-{volume}", "labels": own, **metadata}, "spec": {}}

    claims = [
        claim(None),
        claim("1"),
        claim("2", annotations={ANNOTATION_RELEASED: "true"}),
        claim("3", deletionTimestamp=STARTED),
        claim("one"),
    ]
    found = by_node([], claims, [])[0]
    assert sorted(found.claims) == [0, 1, 2, 3]
    assert found.claim == claims[0]
    assert volumes_in_use(found) == {0, 1}
    seen = observed_node(found)
    assert seen.has_volume
    assert {volume_id: volume.is_in_use for volume_id, volume in seen.volumes.items()} == {
        0: True,
        1: True,
        2: False,
        3: False,
    }
    assert seen.volumes[1].directory == "/var/lib/quorate-1/data"


def test_a_class_that_cannot_expand_is_named() -> None:
    claim = {"metadata": {"name": "data-quorum-3000"}, "spec": {"storageClassName": "fast"}}
    prefix = 'persistentvolumeclaims "data-quorum-3000" is forbidden: '
    reported = growth_refusal(f"{prefix}the storageclass must support resize", claim)
    assert (
        reported == "the StorageClass fast has no allowVolumeExpansion: the storageclass must support resize"
    )
    assert growth_refusal(f"{prefix}too much", claim) == "too much"
    assert growth_refusal(None, claim) is None
