"""Kubernetes Events for each step and each failure. A repeated attempt writes no further Event."""

import logging
import secrets
import time
from collections import OrderedDict
from datetime import UTC, datetime

from quorate_operator import clock
from quorate_operator.runtime.kubernetes.api import EVENT, ApiError, KubernetesApi, Object
from quorate_operator.web.snapshots import ClusterEvent, ClusterKey, SnapshotRegistry

RECORDED_MAX = 2048
REPEAT_AFTER_S = 600.0
"""An Event that still applies is repeated after this time."""
NOTE_LENGTH_MAX = 1024
REASON_LENGTH_MAX = 128

log = logging.getLogger(__name__)


class EventRecorder:
    """Writes Events about KafkaControllers and KafkaBrokers, and adds them to the status page."""

    def __init__(self, api: KubernetesApi, snapshots: SnapshotRegistry, identity: str) -> None:
        self._api = api
        self._snapshots = snapshots
        self._identity = identity
        self._recorded: OrderedDict[tuple[str, ...], float] = OrderedDict()

    async def record(
        self, cluster: ClusterKey | None, about: Object, reason: str, note: str, *, is_warning: bool = False
    ) -> None:
        """Write an Event, unless an equal one was written and not settled since. A failure to write is logged.

        The status page shows it as one of `cluster`, if that is given.
        """
        note = note[:NOTE_LENGTH_MAX]  # the page and the record of what was written are bounded as well
        key = (about["metadata"]["uid"], reason, note)
        now = time.monotonic()
        if self._recorded.get(key, -REPEAT_AFTER_S) > now - REPEAT_AFTER_S:
            return
        self._recorded[key] = now
        self._recorded.move_to_end(key)
        while len(self._recorded) > RECORDED_MAX:
            self._recorded.popitem(last=False)
        if cluster is not None:
            event = ClusterEvent(at_ms=clock.now_ms(), text=f"{reason}: {note}", is_warning=is_warning)
            self._snapshots.add_event(cluster, event)
        namespace, name = about["metadata"]["namespace"], about["metadata"]["name"]
        if self._api.is_terminating(namespace):
            return
        try:
            await self._api.create(EVENT, namespace, self._event(about, reason, note, is_warning))
        except ApiError as error:  # an Event is for people; nothing depends on it
            log.warning("%s/%s: the Event %s was not written: %s", namespace, name, reason, error)

    def settle(self, about: Object, reason: str, note: str) -> None:
        """Mark a step as done, so that the same step is reported again when it has to be repeated."""
        self._recorded.pop((about["metadata"]["uid"], reason, note[:NOTE_LENGTH_MAX]), None)

    def _event(self, about: Object, reason: str, note: str, is_warning: bool) -> Object:
        metadata = about["metadata"]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {
                "name": f"{metadata['name']}.{secrets.token_hex(8)}",
                "namespace": metadata["namespace"],
            },
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": "quorate.dev/operator",
            "reportingInstance": self._identity[:REASON_LENGTH_MAX],
            "action": reason[:REASON_LENGTH_MAX],
            "reason": reason[:REASON_LENGTH_MAX],
            "type": "Warning" if is_warning else "Normal",
            "note": note,
            "regarding": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        }
