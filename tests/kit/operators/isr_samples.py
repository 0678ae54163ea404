"""Looks at every partition until SIGTERM, in a pod with our image: a line of JSON for each look.

The arguments are the bootstrap servers, a file of client properties, and how many replicas have to be in sync.
"""

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError
from quorate_protocol.properties import parse_properties

REST_S = 0.2


async def main(bootstrap_servers: str, properties: dict[str, str], in_sync_min: int) -> None:
    """Look until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    config = AdminConfig.from_properties(properties, bootstrap_servers=bootstrap_servers)
    async with AdminClient(config) as client:
        while not ended.is_set():
            sample: dict[str, object] = {"timestamp": time.time_ns() // 1_000_000}
            try:
                described = await client.describe_topics(await client.list_topics(list_internal=True))
                described.raise_any()
                partitions = [
                    (f"{name}-{partition.partition}", len(partition.isr))
                    for name, topic in described.values.items()
                    for partition in topic.partitions
                ]
                sample["partitions"] = len(partitions)
                sample["under"] = {name: isr for name, isr in partitions if isr < in_sync_min}
                sample["thin"] = sum(isr == in_sync_min for _, isr in partitions)
            except AdminError as error:
                sample["error"] = f"{error}"
            sys.stdout.write(json.dumps(sample) + "\n")
            sys.stdout.flush()
            with suppress(TimeoutError):
                async with asyncio.timeout(REST_S):
                    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], parse_properties(Path(sys.argv[2]).read_text()), int(sys.argv[3])))
