"""What a stream keeps in checkpoints, what it is asked for, and when a quorum is another one."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark_quorate.source.follow import Mark
from pyspark_quorate.source.follow_feed import is_led_below
from pyspark_quorate.source.options import OptionError
from pyspark_quorate.source.stream import OffsetError, QuorumStreamReader, StreamOffset
from pyspark_quorate.source.stream_options import InitialOffset, StreamOptions
from quorate_admin.types.cluster import QuorumDescription, ReplicaDescription
from quorate_protocol.observer import Position

BOOTSTRAP = {"bootstrapControllers": "a:1, b:2"}
SECRET = "not-for-anybody"
WHERE = {"clusterId": "Yw2lTyfCRRmAsBnMBLYZuQ", "offset": 12, "epoch": 3, "leaderEpoch": 4}


# Offsets


@pytest.mark.parametrize("parted_at", [None, Position(7, 2)])
def test_an_offset_survives_a_checkpoint(parted_at: Position | None) -> None:
    offset = StreamOffset(cluster_id="c", mark=Mark(Position(9, 4), 5), parted_at=parted_at)
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_json()) == text


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"clusterId": ""}, "clusterId=''"),
        ({"offset": -1}, "offset=-1"),
        ({"offset": "12"}, "offset='12'"),
        ({"epoch": 2**31}, f"epoch={2**31}"),
        ({"leaderEpoch": None}, "leaderEpoch=None"),
        ({"offset": True}, "offset=True"),
        ({"partedAt": {"offset": 1}}, "epoch=None"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(changed: dict[str, object], field: str) -> None:
    StreamOffset.from_json(WHERE)
    with pytest.raises(OffsetError, match="allowed is") as raised:
        StreamOffset.from_json({**WHERE, **changed})
    assert field in str(raised.value)


# Options


def test_options_are_read_in_any_case_and_a_file_gives_way(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=1234\ndefault.api.timeout.ms=5000\n")
    given = {
        **BOOTSTRAP,
        "initialOffset": "Latest",
        "maxRecordsPerTrigger": "10",
        "maxBytesPerTrigger": "20",
        "noOps": "true",
        "configFile": str(file),
        "config.request.timeout.ms": "99",
    }
    options = StreamOptions.parse({name.lower(): value for name, value in given.items()})
    config = options.admin_config()
    assert (options.initial_offset, options.records_max, options.bytes_max) == (InitialOffset.LATEST, 10, 20)
    assert options.no_ops
    assert options.source == "a:1,b:2"
    assert (config.request_timeout_ms, config.default_api_timeout_ms) == (99, 5000)
    assert QuorumStreamReader(given).getDefaultReadLimit() == ReadMaxRows(10)
    assert StreamOptions.parse(BOOTSTRAP).records_max > 0, "there is always a bound"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bootstrapControllers": " , "}, ["bootstrapControllers", "host:port"]),
        ({"bootstrapControllers": "a"}, ["bootstrap.controllers", "host-1:9092"]),
        ({"initialOffset": "newest"}, ["initialOffset", "'newest'", "earliest, latest"]),
        ({"maxRecordsPerTrigger": "0"}, ["maxRecordsPerTrigger", "'0'", "from 1"]),
        ({"maxBytesPerTrigger": "1.5"}, ["maxBytesPerTrigger", "'1.5'", "from 1"]),
        ({"maxRecordPerTrigger": "5"}, ["maxrecordpertrigger", "maxRecordsPerTrigger"]),
        ({"configFile": "/is/not/there"}, ["configFile", "/is/not/there", "No such file"]),
        ({"configFile": "/dev/zero"}, ["configFile", "/dev/zero", "more than 1048576 bytes"]),
        ({"config.request.timeout.ms": "x"}, ["request.timeout.ms=x", "whole number"]),
        ({"noOps": "yes"}, ["noOps", "'yes'", "false, true"]),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(given: dict[str, str], words: list[str]) -> None:
    with pytest.raises(OptionError) as raised:
        StreamOptions.parse({**BOOTSTRAP, **given})
    assert [word for word in words if word not in str(raised.value)] == []


def test_secrets_are_in_no_text() -> None:
    login = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
    )
    sasl = {"config.security.protocol": "SASL_SSL", "config.sasl.mechanism": "PLAIN"}
    options = StreamOptions.parse({**BOOTSTRAP, **sasl, "config.sasl.jaas.config": login})
    assert SECRET not in f"{options!r} {options.admin_config()!r}"
    with pytest.raises(OptionError) as raised:
        StreamOptions.parse({**BOOTSTRAP, **sasl, "config.sasl.jaas.config": login.replace("Plain", "Other")})
    assert SECRET not in str(raised.value)


def test_offsets_of_another_run_are_read_before_anybody_is_asked() -> None:
    with pytest.raises(OffsetError, match="clusterId=None"):
        QuorumStreamReader(BOOTSTRAP).latestOffset({"topic": {"0": 5}}, ReadAllAvailable())


# Another quorum


@pytest.mark.parametrize(
    ("leader_epoch", "behind_ms", "expected"),
    [
        (3, (0, 100, 90_000), True),
        (3, (0, 90_000, 90_000), False),
        (3, (0, None, 90_000), False),
        (7, (0, 100, 100), False),
        (8, (0, 100, 100), False),
    ],
    ids=["followed", "cut off", "never followed", "the same", "later"],
)
def test_a_majority_in_a_lower_epoch_is_a_recreated_quorum(
    leader_epoch: int, behind_ms: tuple[int | None, ...], expected: bool
) -> None:
    """A leader that does not know that it was replaced is not taken for a new quorum."""
    now_ms = 1_700_000_000_000
    voters = tuple(
        ReplicaDescription(
            node_id=place,
            directory_id=UUID(int=place),
            log_end_offset=9,
            last_fetch_ms=None,
            last_caught_up_ms=None if behind is None else now_ms - behind,
        )
        for place, behind in enumerate(behind_ms)
    )
    quorum = QuorumDescription(
        leader_id=0, leader_epoch=leader_epoch, high_watermark=9, voters=voters, observers=()
    )
    assert is_led_below(quorum, 7) is expected
