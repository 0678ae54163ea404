"""Maintenance windows under a real API server: what waits for them, and that the wait ends by itself."""

from datetime import UTC, datetime, timedelta

import kubernetes.client
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
NAMES = [f"{QUORUM}-{node_id}" for node_id in NODES]
FAR, NEAR = timedelta(hours=12), timedelta(seconds=20)


def test_a_roll_waits_for_its_window_and_goes_on_when_it_opens(operated: Operated) -> None:
    """A new image restarts no node before its window, is reported with the time, and rolls when the window opens."""
    far = _full_minute(FAR)
    operated.create(rollout=_rollout(far))
    operator = operated.start_operator()
    operated.wait_settled(*NODES)
    before = _uids(operated)
    operated.patch(image="quorate:other")
    operated.wait(
        lambda: _postponed(operated, far) == ["True", "False"], "the restarts to wait for the window"
    )
    assert "3000 (image: quorate:test -> quorate:other)" in operated.condition("Ready")["message"]
    assert operated.settled(*NODES)

    operated.core.delete_namespaced_pod(NAMES[0], operated.namespace)
    operated.wait(lambda: _uids(operated).get(NAMES[0], before[NAMES[0]]) != before[NAMES[0]], "its return")
    operated.wait_settled(*NODES)
    assert "3000 (image:" not in operated.condition("Ready")["message"]

    near = _full_minute(NEAR)
    operated.patch(rollout=_rollout(near))
    operated.wait(
        lambda: _postponed(operated, near) == ["True", "False"], "the time of the window to be reported"
    )
    assert (_images(operated)[NAMES[0]], _uids(operated)[NAMES[1]]) == ("quorate:other", before[NAMES[1]])
    assert operated.events("StopNode") == []

    operated.wait(lambda: operated.condition("Ready").get("reason") == "AllReady", "the roll to be done")
    assert set(_images(operated).values()) == {"quorate:other"}
    stops = _stops(operated)
    assert len(stops) == len(NODES) - 1
    assert min(stops) >= near
    assert not operator.errors()


def _full_minute(later: timedelta) -> datetime:
    """The first full minute after this time."""
    return (datetime.now(UTC) + later).replace(second=0, microsecond=0) + timedelta(minutes=1)


def _rollout(opens: datetime) -> dict[str, object]:
    return {"overlap": "1s", "windows": [{"start": f"{opens:%H:%M}", "duration": "1h"}]}


def _postponed(operated: Operated, opens: datetime) -> list[str]:
    """The statuses of the conditions that say from when on nodes are to be restarted."""
    conditions = [operated.condition(kind) for kind in ("Ready", "Reconciling")]
    return [
        condition["status"]
        for condition in conditions
        if condition.get("reason") == "RestartsPostponed"
        and f"from {opens:%Y-%m-%d %H:%M} UTC on" in condition["message"]
    ]


def _uids(operated: Operated) -> dict[str, str]:
    pods = operated.core.list_namespaced_pod(operated.namespace).items
    return {pod.metadata.name: pod.metadata.uid for pod in pods}


def _images(operated: Operated) -> dict[str, str]:
    """The images of the nodes' containers by the names of their pods."""
    pods = operated.core.list_namespaced_pod(operated.namespace).items
    return {
        pod.metadata.name: container.image
        for pod in pods
        for container in pod.spec.containers
        if container.name == "node"
    }


def _stops(operated: Operated) -> list[datetime]:
    events = kubernetes.client.EventsV1Api(operated.core.api_client).list_namespaced_event(operated.namespace)
    return [event.event_time for event in events.items if event.reason == "StopNode"]
