"""Create a topic, change one of its configs and print its partitions: `python topics.py localhost:9092 orders`."""

import asyncio
import sys

from quorate_admin import (
    AdminClient,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    ErrorCode,
    NewTopic,
    ServerError,
)


async def main(bootstrap_server: str, name: str) -> None:
    """Run against the cluster of one of its brokers."""
    async with AdminClient(bootstrap_servers=[bootstrap_server]) as admin:
        created = await admin.create_topics([NewTopic(name, 3, configs={"cleanup.policy": "compact"})])
        try:
            created.raise_any()
        except ServerError as error:
            if error.error_code is not ErrorCode.topic_already_exists:
                raise
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        altered = await admin.incremental_alter_configs(
            {resource: [AlterConfigOp("retention.ms", "86400000")]}
        )
        altered.raise_any()
        described = await admin.describe_topics([name])
        for partition in described.values[name].partitions:
            sys.stdout.write(
                f"{name}-{partition.partition}: leader {partition.leader}, ISR {partition.isr}\n"
            )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
