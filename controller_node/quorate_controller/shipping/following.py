"""Shipping again and again beside a controller, until the process is to end.

The directory is looked at in an interval: a log may be on a file system without change notifications, and
what is looked for, a segment that was closed or a checkpoint, comes once in minutes.
"""

import asyncio
import logging
import signal
import threading
from pathlib import Path

from quorate_controller.shipping.shipper import NotFormattedError, Round, ShipError, Shipper, StoppedError
from quorate_controller.storage.errors import StorageError

log = logging.getLogger(__name__)


def follow(log_dir: Path, history: Path, *, interval_s: float, include_active: bool) -> None:
    """Ship until SIGTERM or SIGINT. Errors do not end it: a full disk may have room again."""
    asyncio.run(_follow(log_dir, history, interval_s=interval_s, include_active=include_active))


async def _follow(log_dir: Path, history: Path, *, interval_s: float, include_active: bool) -> None:
    ended, is_stopping = asyncio.Event(), threading.Event()

    def stop() -> None:
        is_stopping.set()
        ended.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    shipper = Shipper(
        log_dir=log_dir, history=history, include_active=include_active, is_stopping=is_stopping.is_set
    )
    log.info("following", extra={"facts": {"log_dir": str(log_dir), "history": str(history)}})
    while not ended.is_set():
        try:
            _tell(await asyncio.to_thread(shipper.ship))
        except NotFormattedError as error:
            log.info("waiting_for_a_log", extra={"facts": {"reason": str(error)}})
        except (ShipError, StorageError) as error:
            log.error("not_shipped", extra={"facts": {"reason": str(error)}})  # noqa: TRY400 - no traceback
        except StoppedError:
            break
        try:
            async with asyncio.timeout(interval_s):
                await ended.wait()
        except TimeoutError:
            continue
    log.info("stopped")


def _tell(done: Round) -> None:
    for problem in done.problems:
        log.error("not_shipped", extra={"facts": {"reason": problem}})
