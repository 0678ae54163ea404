"""ACLs for blocks of addresses (KIP-1276), which controllers of Kafka 4.4 take from metadata.version 4.4-IV1 on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.kafka import stock_kafka_of
from quorate_admin.client import AdminClient
from quorate_admin.types.acls import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from quorate_admin.types.cluster import FeatureUpdate
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ResourceType
from quorate_protocol.kafka.releases import NEWEST_RELEASE

pytestmark = pytest.mark.integration


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[JavaCluster]:
    """A controller of the newest release with an authorizer, at metadata.version 4.3-IV0."""
    kafka = stock_kafka_of(NEWEST_RELEASE)
    tools = JavaTools(kafka)
    cluster = None
    try:
        cluster = JavaCluster.prepared(
            tmp_path / "cluster", kafka.libs, tools, brokers=0, metadata_version="4.3"
        )
        yield cluster.start_all()
    finally:
        if cluster is not None:
            cluster.close()
        tools.close()


def reading_from(host: str) -> AclBinding:
    """Alice may read a topic from there."""
    return AclBinding(
        pattern=ResourcePattern(resource_type=ResourceType.TOPIC, name="t"),
        entry=AccessControlEntry(principal="User:alice", host=host, operation=AclOperation.READ),
    )


async def test_blocks_are_taken_from_their_level_on(controller: JavaCluster) -> None:
    """Our client says what Kafka 4.4 says, and gives hosts back as they are."""
    async with AdminClient(bootstrap_controllers=controller.bootstrap_controllers.split(",")) as admin:

        async def refusal(host: str) -> tuple[ErrorCode, str] | None:
            (error,) = (await admin.create_acls([reading_from(host)])).errors.values() or (None,)
            return None if error is None else (error.error_code, error.message)

        assert await refusal("10.0.0.1") is None
        code, message = await refusal("10.0.0.0/8") or (None, "")
        assert (code, message) == (
            ErrorCode.unsupported_version,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
        await admin.update_features({"metadata.version": FeatureUpdate(max_level=32)})
        for host in ("10.0.0.0/8", "fd00::/8"):
            assert await refusal(host) is None
        code, message = await refusal("10.0.0.0/99") or (None, "")
        assert code is ErrorCode.invalid_request
        assert message.startswith("Invalid CIDR notation '10.0.0.0/99'")
        described = await admin.describe_acls(AclBindingFilter())
        assert {binding.entry.host for binding in described} == {"10.0.0.1", "10.0.0.0/8", "fd00::/8"}
