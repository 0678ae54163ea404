"""Record what Kafka's metadata shell prints: of the golden files, and of a checkpoint with something of everything.

    python tools/capture_metadata_trees.py --jars <libs of Kafka>

Writes tests/golden/metadata_shell/: `everything.checkpoint`, and for each file the output of `tree /image`.
"""

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from uuid import UUID

from quorate_protocol.image.snapshot import write_records
from quorate_protocol.records import generated as records
from quorate_protocol.records.generated import MetadataRecord

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
OUT = GOLDEN / "metadata_shell"
FILES = {
    "current-log": GOLDEN / "data" / "current" / "00000000000000000000.log",
    "current-checkpoint": GOLDEN / "data" / "current" / "00000000000000000218-0000000001.checkpoint",
    "oldest-log": GOLDEN / "data" / "oldest" / "00000000000000000000.log",
    "everything": OUT / "everything.checkpoint",
}
LEVEL = 30
TOPIC = UUID("f3b0c442-98fc-4c14-9afb-f4c8996fb924")
DIRECTORIES = (UUID(int=1), UUID(int=2), None)
LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\dT.* ERROR ")


def everything() -> list[MetadataRecord]:
    """A record of each kind that a checkpoint may have, with values that are written in special ways."""
    quotas = [1024.0, 1e7, 12345678.9, 0.001, 0.0005, 1.5e-9, 3e20, 100.0, 0.1]
    return [
        records.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL),
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        _broker(1, rack=None, fenced=True, cordoned=None),
        _broker(10, rack="rack (a)", fenced=False, cordoned=(UUID(int=1 << 90),)),
        _broker(2, rack="", fenced=False, cordoned=()),
        *_controllers(),
        records.TopicRecord(name="t.o_p-ic", topic_id=TOPIC),
        *(_partition(number) for number in (0, 1, 2, 10, 9)),
        records.TopicRecord(name="empty", topic_id=UUID(int=200)),
        *(
            records.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
            for kind, name, key, value in (
                (2, "t.o_p-ic", "cleanup.policy", "compact,delete"),
                (2, "t.o_p-ic", "retention.ms", "-1"),
                (4, "", "log.cleaner.threads", "2"),
                (4, "10", "listener.name.x.ssl.keystore.password", "secret"),
                (16, "sub:scription", "interval.ms", "5000"),
                (32, "my group", "consumer.session.timeout.ms", "45000"),
            )
        ),
        *(
            records.ClientQuotaRecord(entity=_entity(**entity), key=f"key_{place}", value=quota, remove=False)
            for place, quota in enumerate(quotas)
            for entity in ({"user": "al(i)\\ce"}, {"client-id": "c", "user": "bob"}, {"ip": "10.0.0.1"})
        ),
        records.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=2**40),
        *_security(),
    ]


def _controllers() -> list[MetadataRecord]:
    return [
        records.RegisterControllerRecord(
            controller_id=3000,
            incarnation_id=UUID(int=7 << 64),
            zk_migration_ready=True,
            end_points=(
                records.ControllerEndpoint(name="Z", host="::1", port=1, security_protocol=3),
                records.ControllerEndpoint(name="A", host="h", port=65535, security_protocol=2),
            ),
            features=(
                records.ControllerFeature(name="x", min_supported_version=1, max_supported_version=1),
                records.ControllerFeature(name="open", min_supported_version=1, max_supported_version=32767),
            ),
        ),
        records.RegisterControllerRecord(
            controller_id=3001,
            incarnation_id=UUID(int=8),
            zk_migration_ready=False,
            end_points=(),
            features=(),
        ),
    ]


def _security() -> list[MetadataRecord]:
    acls = [(2 + n % 6, 3 + n % 2, 2 + n % 14, 2 + n % 2) for n in range(14)]
    keys = {"salt": b"\x00\xff", "stored_key": b"\x01" * 4, "server_key": b"\xab" * 4, "iterations": 8192}
    times = {"issue_timestamp": 1, "max_timestamp": 2, "expiration_timestamp": 3}
    return [
        *(
            records.AccessControlEntryRecord(
                id=UUID(int=place << 70 | 9),
                resource_type=resource,
                resource_name="n",
                pattern_type=pattern,
                principal="User:a b",
                host="*",
                operation=operation,
                permission_type=permission,
            )
            for place, (resource, pattern, operation, permission) in enumerate(acls, start=1)
        ),
        *(
            records.UserScramCredentialRecord(name=user, mechanism=mechanism, **keys)
            for user, mechanism in (("alice", 1), ("alice", 2), ("bob", 2))
        ),
        *(
            records.DelegationTokenRecord(
                owner="User:o", requester=requester, renewers=renewers, token_id=token_id, **times
            )
            for requester, renewers, token_id in (
                ("User:r", ("User:a", "User:b"), "token-1"),
                ("User:o", (), "token-2"),
            )
        ),
    ]


def _broker(
    broker_id: int, *, rack: str | None, fenced: bool, cordoned: tuple[UUID, ...] | None
) -> MetadataRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id << 100),
        broker_epoch=2**33 + broker_id,
        end_points=(
            records.BrokerEndpoint(name="PLAINTEXT", host="a.example", port=9092, security_protocol=0),
            records.BrokerEndpoint(name="EXTERNAL", host="b.example", port=9093, security_protocol=1),
        ),
        features=(
            records.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),
        ),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=not fenced,
        log_dirs=(UUID(int=1 << 127), UUID(int=1 << 90)),
        cordoned_log_dirs=cordoned,
    )


def _partition(number: int) -> MetadataRecord:
    return records.PartitionRecord(
        partition_id=number,
        topic_id=TOPIC,
        replicas=(1, 2, 10),
        isr=(2,) if number else (),
        removing_replicas=(1,) if number == 1 else (),
        adding_replicas=(2, 10) if number == 1 else (),
        leader=2 if number else -1,
        leader_recovery_state=int(number == 2),
        leader_epoch=number,
        partition_epoch=number + 1,
        directories=DIRECTORIES,
        eligible_leader_replicas=(1,) if number == 0 else None,
        last_known_elr=(2, 10) if number == 0 else None,
    )


def _entity(**parts: str) -> tuple[records.EntityData, ...]:
    names = {"client_id": "client-id"}
    return tuple(
        records.EntityData(entity_type=names.get(kind, kind), entity_name=name)
        for kind, name in parts.items()
    )


def kafkas_tree(jars: Path, file: Path) -> str:
    """What Kafka's shell prints; of a copy, for it locks the directory."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copy(file, scratch)
        shell = ("java", "-cp", f"{jars}/*", "org.apache.kafka.shell.MetadataShell", "-s", copy)
        ran = subprocess.run((*shell, "tree", "/image"), capture_output=True, check=True, text=True)
    lines = ran.stdout.splitlines(keepends=True)
    return "".join(line for line in lines if not LOG_LINE.match(line))


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, required=True, help="directory with Kafka's jars")
    jars = parser.parse_args().jars
    OUT.mkdir(exist_ok=True)
    checkpoint = write_records(everything(), metadata_version=LEVEL, now_ms=1_700_000_000_120, epoch=5)
    FILES["everything"].write_bytes(b"".join(checkpoint))
    for name, file in FILES.items():
        (OUT / f"{name}.txt").write_text(kafkas_tree(jars, file))


if __name__ == "__main__":
    main()
