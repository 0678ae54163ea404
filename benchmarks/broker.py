"""A broker that only registers and heartbeats, so that controllers can be measured without a JVM near."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_registration_request import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.kafka.releases import NEWEST_RELEASE, RELEASES

from benchmarks.client import Connection

if TYPE_CHECKING:
    from uuid import UUID

    from benchmarks.quorum import Quorum

BROKER_ID: Final = 0
"""The id of the only broker."""
HEARTBEAT_SECONDS: Final = 1.0
METADATA_OFFSET_CAUGHT_UP: Final = 1 << 40
FEATURES: Final = {
    "metadata.version": (7, RELEASES[NEWEST_RELEASE].metadata_version),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 1),
}


class HeartbeatingBroker:
    """Keeps one broker registered and unfenced at the active controller, from a thread of its own."""

    def __init__(self, quorum: Quorum, cluster_id: str) -> None:
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._stop = threading.Event()
        self._epoch = -1
        self._incarnation_id = uuid4()
        self._log_dir = uuid4()
        self.unfenced = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                active_id = self._quorum.active(timeout_seconds=10)
                with Connection(self._quorum.addresses[active_id], timeout_seconds=5) as connection:
                    self._serve(connection)
            except (OSError, TimeoutError):
                self._stop.wait(0.1)

    def _serve(self, connection: Connection) -> None:
        """Until the controller says that it is not the active one."""
        while not self._stop.is_set():
            if self._epoch < 0:
                response = connection.ask(
                    registration_request(BROKER_ID, self._cluster_id, self._incarnation_id, self._log_dir)
                )
                if response.error_code is not ErrorCode.none:
                    self._stop.wait(0.05)
                    return
                self._epoch = response.broker_epoch
            response = connection.ask(heartbeat_request(BROKER_ID, self._epoch))
            if response.error_code is not ErrorCode.none:
                return
            if response.is_fenced:
                self._stop.wait(0.02)
            else:
                self.unfenced.set()
                self._stop.wait(HEARTBEAT_SECONDS)


def registration_request(
    broker_id: int, cluster_id: str, incarnation_id: UUID, log_dir: UUID
) -> BrokerRegistrationRequest:
    """The registration of a broker with one directory and every feature of the newest Kafka."""
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=(Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0),),
        features=tuple(
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in FEATURES.items()
        ),
        rack=None,
        log_dirs=(log_dir,),
    )


def heartbeat_request(broker_id: int, broker_epoch: int) -> BrokerHeartbeatRequest:
    """A heartbeat of a broker that has read all of the log."""
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        current_metadata_offset=METADATA_OFFSET_CAUGHT_UP,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(),
    )
