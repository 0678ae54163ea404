"""Nothing of a metadata log that is secret gets into a lake: docs/lake.md promises it."""

from pathlib import Path

import pytest
from kit.lake.directories import write_directory
from kit.lake.lakes import store_rows
from kit.secret_search import files_below, homes_of
from pyspark_quorate.source import columns, payload
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import MetadataRecord, encode_record
from quorate_protocol.records.generated import ConfigRecord, TopicRecord, UserScramCredentialRecord

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
BROKER = 4
TOPIC = "planted-in-the-lake"
SECRETS = {
    "salt": bytes(range(30)),
    "stored key": bytes(range(100, 132)),
    "server key": bytes(range(200, 232)),
    "password of a plug-in": "kept-secret-of-a-plug-in",
    "password of a listener": "kept-secret-of-a-listener",
}


def secretive_log(where: Path) -> None:
    """The log of a node with each secret: once alone, and in runs of records that are decoded column by column."""
    credential = UserScramCredentialRecord(
        name="alice",
        mechanism=1,
        salt=SECRETS["salt"],
        stored_key=SECRETS["stored key"],
        server_key=SECRETS["server key"],
        iterations=4096,
    )
    jaas = f'PlainLoginModule required username="node" password="{SECRETS["password of a listener"]}";'
    configs = [
        ConfigRecord(resource_type=BROKER, resource_name="", name=name, value=value)
        for name, value in (
            ("plugin.password", SECRETS["password of a plug-in"]),
            ("listener.name.clients.plain.sasl.jaas.config", jaas),
        )
    ]
    topic = TopicRecord(name=TOPIC, topic_id=None)
    records: list[MetadataRecord] = [credential, *configs, topic]
    for secret in (credential, *configs):
        records += [secret] * 100
    write_directory(
        where, {0: build_batch([encode_record(record) for record in records], 0, 1, 1_000)}, CLUSTER
    )


@pytest.mark.parametrize("redacts", [True, False])
def test_no_secret_gets_into_a_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, redacts: bool
) -> None:
    """A lake has no key of a SCRAM user and no config that may be a password."""
    if not redacts:
        monkeypatch.setattr(payload, "SECRET_FIELDS", frozenset())
        monkeypatch.setattr(payload, "redact", lambda record: record)
        monkeypatch.setattr(columns, "is_secret_config", lambda *_: False)
        monkeypatch.setattr(payload, "_writers", {})
    secretive_log(tmp_path / "node")
    lake = tmp_path / "lake"
    store_rows(lake, tmp_path / "node", CLUSTER)
    places = {"lake": [content for contents in files_below(lake).values() for content in contents]}
    found = homes_of({"planted": TOPIC, **SECRETS}, places)
    assert found == {"planted": {"lake"}, **dict.fromkeys(SECRETS, set() if redacts else {"lake"})}
