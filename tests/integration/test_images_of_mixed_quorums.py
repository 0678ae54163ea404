"""The same image in Java and in Python: of one log that both have written, in each other's snapshots too.

There are no brokers: the test registers some, and sends random admin requests to whichever controller leads.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.differential.nodes import SETTINGS, Node
from kit.differential.question import Caller
from kit.differential.requests import put_rounds
from kit.java.images import ask_java, image_at, records_of
from kit.kafka import jars_of
from kit.membership import lead_with
from kit.metadata import (
    Snapshot,
    assert_same_images,
    assert_snapshots_hold,
    batches_in,
    content,
    end_offset,
    snapshots_in,
)
from kit.waiting import eventually
from quorate_operator.runtime.local.loopback import is_free
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.kafka.generated import alter_client_quotas_request as quotas
from quorate_protocol.kafka.generated import alter_user_scram_credentials_request as scram
from quorate_protocol.kafka.generated import create_acls_request as create_acls
from quorate_protocol.kafka.generated import create_delegation_token_request as create_token
from quorate_protocol.kafka.releases import NEWEST_RELEASE
from quorate_protocol.records.framing import decode_record

pytestmark = pytest.mark.integration

JAVA = 3000
LEADERS = ("python", "java", "python", "java")
ROUNDS = 3
"""Rounds of requests for each leader."""
SNAPSHOT_EVERY_MS = 2_000
WAIT_S = 60
SUPER_USER = "alice"
GONE = "gone"
"""A user whose credential is deleted again."""
IN_THE_IMAGE = {
    "FeatureLevelRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "topics",
    "ConfigRecord",
    "ClientQuotaRecord",
    "ProducerIdsRecord",
    "AccessControlEntryRecord",
    "UserScramCredentialRecord",
    "DelegationTokenRecord",
}
"""Kinds of `kit.metadata.content` that the run has to leave."""
IN_THE_LOG = {
    "PartitionChangeRecord",
    "RemoveTopicRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveUserScramCredentialRecord",
    "RemoveDelegationTokenRecord",
    "UnregisterBrokerRecord",
    "BrokerRegistrationChangeRecord",
    "BeginTransactionRecord",
    "EndTransactionRecord",
}
"""Kinds of records that leave nothing in the image, and that the run has to write."""


@pytest.fixture
def quorum(tmp_path: Path, kafka_jars: Path) -> Iterator[Cluster]:
    """One Java controller and two of ours, with ACLs and delegation tokens."""
    own = dict(line.split("=", 1) for line in SETTINGS if not line.startswith("controller.quorum."))
    config = {
        **own,
        "controller.quorum.election.timeout.ms": 500,
        "controller.quorum.fetch.timeout.ms": 1000,
        "metadata.log.max.snapshot.interval.ms": SNAPSHOT_EVERY_MS,
    }
    manifest = manifests(java=(JAVA,), brokers=0, config=config)
    cluster = Cluster.create(tmp_path / "cluster", kafka_jars, manifest)
    try:
        # A controller that starts after the others' first snapshot has no log from the beginning.
        cluster.start(JAVA)
        port = int(cluster.address(JAVA).rpartition(":")[2])
        eventually(lambda: not is_free(port), WAIT_S, "the Java controller to listen")
        yield cluster.start_all()
    finally:
        cluster.close()


def leave_some_of_each(node: Node, number: int) -> None:
    """Have a user with a quota, an ACL and a credential, and a token: random requests may have deleted all others."""
    user = f"kept-{number}"
    entity = (quotas.EntityData(entity_type="user", entity_name=user),)
    op = quotas.OpData(key="request_percentage", value=50.5, remove=False)
    acl = create_acls.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=user,
        resource_pattern_type=PatternType.PREFIXED,
        principal=f"User:{user}",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.DENY,
    )
    credentials = [
        scram.ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
        )
        for name in (user, GONE)
    ]
    gone = scram.ScramCredentialDeletion(name=GONE, mechanism=1)
    token = create_token.CreateDelegationTokenRequest(
        owner_principal_type=None,
        owner_principal_name=None,
        renewers=(create_token.CreatableRenewers(principal_type="User", principal_name="bob"),),
        max_lifetime=timedelta(days=1),
    )
    for request in (
        quotas.AlterClientQuotasRequest(
            entries=(quotas.EntryData(entity=entity, ops=(op,)),), validate_only=False
        ),
        create_acls.CreateAclsRequest(creations=(acl,)),
        scram.AlterUserScramCredentialsRequest(deletions=(), upsertions=tuple(credentials)),
        scram.AlterUserScramCredentialsRequest(deletions=(gone,), upsertions=()),
        token,
    ):
        node.ask(request, Caller(user=SUPER_USER))


def newest_of_each(cluster: Cluster) -> list[Snapshot]:
    """The newest snapshot of each controller; waits for one that has all that was written until now."""
    wanted = cluster.await_quorum().high_watermark

    def newest(node_id: int) -> Snapshot | None:
        found = snapshots_in(cluster.metadata(node_id))
        return found[-1] if found and found[-1].end_offset >= wanted else None

    return [
        eventually(partial(newest, node_id), WAIT_S, f"a snapshot of {node_id} at {wanted}")
        for node_id in cluster.controllers
    ]


def assert_java_agrees(log: Path, snapshots: Sequence[Snapshot]) -> None:
    """Assert that Kafka's classes read each snapshot as the image that they replay the log to."""
    questions = [
        question
        for snapshot in snapshots
        for question in (records_of(snapshot.path), image_at(log, snapshot.end_offset))
    ]
    responses = ask_java(jars_of(NEWEST_RELEASE), questions)
    assert len(responses) == len(questions)
    for place, snapshot in enumerate(snapshots):
        held, replayed = responses[2 * place : 2 * place + 2]
        assert replayed, f"nothing at {snapshot.end_offset} of {log}"
        only_held = [entry for entry in held if entry not in replayed]
        only_replayed = [entry for entry in replayed if entry not in held]
        assert (only_held, only_replayed) == ([], []), f"{snapshot.path} is not what {log} says"
        assert len(held) == len(replayed)


def kinds_in(log: Path) -> set[str]:
    """The kinds of records in a log."""
    return {
        type(decode_record(record.value)).__name__
        for batch in batches_in(log)
        if not batch.is_control
        for record in batch.records
        if record.value is not None
    }


def test_images_and_snapshots_are_the_same_in_java_and_in_python(quorum: Cluster) -> None:
    """Java makes of what our leaders write the image that we make of it, and the other way round."""
    epochs: set[int] = set()
    snapshots: list[Snapshot] = []
    with closing(_first_node(quorum)) as node:
        for number, implementation in enumerate(LEADERS):
            leader = lead_with(quorum, implementation)
            node.move(quorum.address(leader), quorum.metadata(leader))
            if not number:
                assert node.register_brokers()
            put_rounds(node.put, ROUNDS, number)
            leave_some_of_each(node, number)
            snapshots += newest_of_each(quorum)
            epochs.add(quorum.await_quorum().leader_epoch)
    assert len(epochs) == len(LEADERS), f"there were {epochs}"
    with quorum.frozen():
        logs = [quorum.metadata(controller) for controller in quorum.controllers]
        image = assert_same_images(logs)
        assert_snapshots_hold(logs)
        assert min(end_offset(log) for log in logs) >= max(snapshot.end_offset for snapshot in snapshots)
        for log in logs:
            assert_java_agrees(log, snapshots)
    assert content(image).keys() >= IN_THE_IMAGE
    assert kinds_in(logs[0]) >= IN_THE_LOG


def _first_node(quorum: Cluster) -> Node:
    leader = quorum.await_leader()
    return Node(
        "the quorum", quorum.address(leader), quorum.metadata(leader), quorum.layout.identity.cluster_id
    )
