"""What a heartbeat costs, counted and not timed: from the socket to the response."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import quorate_controller
import quorate_protocol
from kit.controller_in_process import only_voter
from kit.controller_parts import caller
from kit.work.counter import counting_calls
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated import broker_registration_request as registration
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.frames import encode_frame

if TYPE_CHECKING:
    from quorate_controller.driver import Driver

CONNECTIONS: Final = 64
ROUNDS: Final = 5
CALLS_MAX: Final = 113
"""Calls of our functions for each heartbeat. It takes 105 where all connections share a turn."""
OURS: Final = tuple(Path(str(package.__file__)).parent for package in (quorate_controller, quorate_protocol))
PROMPT_S: Final = 60.0


async def registered(driver: Driver) -> BrokerHeartbeatRequest:
    """A heartbeat of a broker that has registered."""
    features = tuple(
        registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    )
    request = registration.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id=driver.cluster_id,
        incarnation_id=UUID(int=1),
        listeners=(registration.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0),),
        features=features,
        rack=None,
        log_dirs=(UUID(int=1_000),),
    )
    response: Any = await driver.control(request, replace(caller(60_000), api_version=4))
    assert response.error_code is ErrorCode.none
    return BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=response.broker_epoch,
        current_metadata_offset=1 << 40,
        want_fence=False,
        want_shut_down=False,
    )


async def test_a_heartbeat_takes_few_calls(tmp_path: Path) -> None:
    """What all requests pass through gets no longer unnoticed."""
    async with only_voter(tmp_path) as (driver, port), asyncio.timeout(PROMPT_S):
        heartbeat = await registered(driver)
        frame = encode_frame(encode_request(APIS[heartbeat.__api_key__], 2, 7, "test", heartbeat))
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]

        async def ask_all() -> set[bytes]:
            for _, writer in streams:
                writer.write(frame)
            return {
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                for reader, _ in streams
            }

        await ask_all()  # what is computed once in a process is no work of a heartbeat
        counts = []
        for _ in range(ROUNDS):
            with counting_calls(*OURS) as calls:
                responses = await ask_all()
            counts.append(calls[0] / CONNECTIONS)
            assert len(responses) == 1
        for _, writer in streams:
            writer.close()
    assert min(counts) <= CALLS_MAX, counts
