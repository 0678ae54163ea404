"""Creates topics one after the other until SIGTERM, in a pod with our image: a line of JSON for each response.

The arguments are the bootstrap servers, a prefix of the topics' names and the number of replicas.
"""

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.types.topics import NewTopic

PARTITIONS = 1
REST_S = 0.5
ANSWER_MS = 20_000


async def main(bootstrap_servers: str, prefix: str, copies: int) -> None:
    """Create topics until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    made = 0
    async with AdminClient(bootstrap_servers=bootstrap_servers.split(",")) as client:
        while not ended.is_set():
            name = f"{prefix}-{made}"
            made += 1
            topic = NewTopic(name=name, partitions=PARTITIONS, replication_factor=copies)
            problem = None
            try:
                (await client.create_topics([topic], timeout_ms=ANSWER_MS)).raise_any()
            except AdminError as error:
                problem = f"{error}"  # it may exist all the same, and nothing was promised
            response = {"topic": name, "error": problem, "timestamp": time.time_ns() // 1_000_000}
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()
            with suppress(TimeoutError):
                async with asyncio.timeout(REST_S):
                    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
