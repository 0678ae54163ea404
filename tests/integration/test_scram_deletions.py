"""What stock Kafka makes of logs in which SCRAM users are deleted: its releases lose the credentials of others.

ScramDelta.apply of 4.3.1 and 4.4.0 takes a mechanism out of the image where a removal leaves it without users, and
does not put it back for users that come after the removal in the order of their hashes. A broker that starts applies
all that it reads at once. Our controllers put removals into metadata transactions: Kafka's loader ends what it
applies before each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from kit.java.images import ask_java, image_at
from kit.kafka import jars_of
from quorate_controller.control.controller import default_bootstrap
from quorate_controller.control.scram_credentials import ScramManager
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from quorate_protocol.kafka.releases import NEWEST_RELEASE
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import MetadataRecord, encode_record, record_version_for
from quorate_protocol.records.generated import BeginTransactionRecord, EndTransactionRecord

pytestmark = pytest.mark.integration

MECHANISMS = (1, 2)
USERS = ("alice", "bob", "carol", "dave")
HISTORIES = 60
REQUESTS_MAX = 8
Credentials = set[tuple[int, str]]


def histories() -> Iterator[list[AlterUserScramCredentialsRequest]]:
    """Yield requests that set and delete credentials: each pair of users, and random ones."""
    for gone in USERS:
        for kept in USERS:
            if kept != gone:
                yield [
                    altering(upserted=[(1, gone)]),
                    altering(upserted=[(1, kept)]),
                    altering(deleted=[(1, gone)]),
                ]
                yield [
                    altering(upserted=[(1, gone)]),
                    altering(deleted=[(1, gone)]),
                    altering(upserted=[(1, kept)]),
                ]
                yield [altering(upserted=[(1, gone)]), altering(deleted=[(1, gone)], upserted=[(1, kept)])]
    random = Random(1)
    for _ in range(HISTORIES):
        there: Credentials = set()
        requests = []
        for _ in range(random.randint(2, REQUESTS_MAX)):
            named = [
                (random.choice(MECHANISMS), user)
                for user in random.sample(USERS, random.randint(1, len(USERS)))
            ]
            deleted = [user for user in named if user in there and random.random() < 0.7]
            upserted = [user for user in named if user not in deleted]
            there = (there - set(deleted)) | set(upserted)
            requests.append(altering(deleted=deleted, upserted=upserted))
        yield requests


def altering(
    *, deleted: Sequence[tuple[int, str]] = (), upserted: Sequence[tuple[int, str]] = ()
) -> AlterUserScramCredentialsRequest:
    """A request that names each user once, as controllers demand."""
    return AlterUserScramCredentialsRequest(
        deletions=tuple(
            ScramCredentialDeletion(name=user, mechanism=mechanism) for mechanism, user in deleted
        ),
        upsertions=tuple(
            ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=b"salted"
            )
            for mechanism, user in upserted
        ),
    )


@dataclass(slots=True)
class Log:
    """A log on disk, and the image that our controllers replay it to."""

    directory: Path
    image: MetadataImage

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """One batch."""
        base_offset = self.image.end_offset
        self.image.replay_batch(records, base_offset=base_offset, epoch=1, timestamp_ms=1_000)
        version = self.image.metadata_version
        values = [encode_record(record, record_version_for(type(record), version)) for record in records]
        with (self.directory / f"{0:020}.log").open("ab") as file:
            file.write(build_batch(values, base_offset, 1, 1_000))


def write_log(
    directory: Path, requests: Sequence[AlterUserScramCredentialsRequest], *, with_transactions: bool
) -> Log:
    """The log of a controller that decides about the requests; without transactions it is that of a stock one."""
    directory.mkdir()
    log = Log(directory, MetadataImage())
    log.append(default_bootstrap().records)
    for request in requests:
        decided = ScramManager(log.image).alter_user_scram_credentials(request)
        assert all(result.error_code == 0 for result in decided.response.results)
        records = [
            record
            for record in decided.records
            if with_transactions or not isinstance(record, BeginTransactionRecord | EndTransactionRecord)
        ]
        log.append(records)
    return log


def javas_credentials(logs: Sequence[Log]) -> list[Credentials]:
    """The credentials in the image that Kafka's loader makes of each whole log."""
    questions = [image_at(log.directory, log.image.end_offset) for log in logs]
    return [
        {
            (record["data"]["mechanism"], record["data"]["name"])
            for record in records
            if record["type"] == "USER_SCRAM_CREDENTIAL_RECORD"
        }
        for records in ask_java(jars_of(NEWEST_RELEASE), questions)
    ]


def test_kafka_keeps_all_other_users_of_our_logs(tmp_path: Path, kafka_jars: Path) -> None:  # noqa: ARG001 - skips
    """A stock broker that starts after a deletion knows all users."""
    logs = [
        write_log(tmp_path / f"{number}", requests, with_transactions=True)
        for number, requests in enumerate(histories())
    ]
    expected = [{(int(mechanism), user) for mechanism, user in log.image.scram} for log in logs]
    assert javas_credentials(logs) == expected
    stock = [
        write_log(tmp_path / f"stock-{number}", requests, with_transactions=False)
        for number, requests in enumerate(histories())
    ]
    assert [log.image.scram.keys() for log in stock] == [log.image.scram.keys() for log in logs]
    lost = [known < there for known, there in zip(javas_credentials(stock), expected, strict=True)]
    assert lost.count(True) > len(lost) / 5
