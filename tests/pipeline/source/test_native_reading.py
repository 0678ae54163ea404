"""The source with the extension and without: the same rows, whatever the bytes; and usual ones are read natively."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.entities import entities_of
from kit.fuzz.mutations import mutated
from kit.lake.directories import read_rows
from pyspark_quorate.rows import SCHEMA
from pyspark_quorate.source import framing, record_decoder, runs
from pyspark_quorate.source.batch_scanner import BatchScanner
from pyspark_quorate.source.columns import program_of
from pyspark_quorate.source.payload import NO_OP, RECORD_NAMES
from pyspark_quorate.source.record_decoder import Origin, RowReader
from pyspark_quorate.source.selection import Selection
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import RECORD_CLASSES, ConfigRecord
from quorate_protocol.wire.codec import encode
from quorate_protocol.wire.codec.native import CODEC, CODEC_REASON

pytestmark = pytest.mark.skipif(CODEC != "native", reason=f"{CODEC_REASON}; `make native` builds it")

RECORDS = 20_000
RECORD_VERSIONS = [
    (key, version) for key, classes in RECORD_CLASSES.items() for version in range(len(classes))
]
SELECTIONS = (
    Selection(),
    Selection(names=RECORD_NAMES),
    Selection(types=frozenset({"TopicRecord", "unknown-record"})),
    Selection(types=frozenset({NO_OP, "ConfigRecord"})),
    Selection(names=RECORD_NAMES, kinds=frozenset({"gap"})),
    Selection(start_offset=12, end_offset=30),
)


@contextmanager
def numpy_alone() -> Iterator[None]:
    """As if the extension were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (record_decoder, framing, runs):
            patch.setattr(module, "extension", None)
        yield


def rows_of(data: bytes, selection: Selection, window: int) -> pa.Table:
    """All rows of a log that is read in windows."""
    reader = RowReader(Origin(cluster_id="c", source="f"), selection, BatchScanner(first_offset=7))
    batches, rest = [], b""
    for start in range(0, max(len(data), 1), window):
        rest += data[start : start + window]
        found, consumed = reader.read(rest, is_end=start + window >= len(data))
        batches += found
        rest = rest[consumed:]
    table = pa.Table.from_batches(batches, schema=record_decoder.ARROW_SCHEMA)
    table.validate(full=True)
    return table


def assert_same_rows(data: bytes, selection: Selection, window: int = 1 << 20) -> pa.Table:
    """The rows, which are the same both ways."""
    native = rows_of(data, selection, window)
    with numpy_alone():
        plain = rows_of(data, selection, window)
    assert native.to_pylist() == plain.to_pylist()
    return native


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a busy cluster."""
    directory = tmp_path_factory.mktemp("history") / "log"
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(Path(__file__).parents[3])
        history = import_module("benchmarks.history")
    history.write_history(
        directory, cluster_id="c", records=RECORDS, segment_bytes=300_000, seed=3, topics=50
    )
    return directory


def read(directory: Path) -> pa.Table:
    """All rows of a directory."""
    return pa.Table.from_batches(read_rows(directory, noOps="true")).combine_chunks()


def test_a_history_has_the_same_rows(history: Path) -> None:
    native = read(history)
    with numpy_alone():
        plain = read(history)
    assert native.equals(plain)
    assert native.num_rows >= RECORDS
    assert native.column_names == SCHEMA.fieldNames()


def test_usual_records_are_read_natively(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    singles = []

    def decode_at(data: bytes, records: framing.Records, index: int) -> object:
        at = int(records.value_start[index])
        has_program = not records.is_control[index] and program_of(data[at + 1], data[at + 2]) is not None
        singles.append(has_program)
        return decode(data, records, index)

    decode = record_decoder._decode_at
    monkeypatch.setattr(record_decoder, "_decode_at", decode_at)
    monkeypatch.setattr(framing, "_frame_in_numpy", None)
    assert read(history).num_rows >= RECORDS
    assert 0 < len(singles) < RECORDS / 100
    assert not any(singles)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_records_have_the_same_rows(data: st.DataObject) -> None:
    """Every type in every version, any content, whatever is selected."""
    values = []
    for key, version in data.draw(st.lists(st.sampled_from(RECORD_VERSIONS), min_size=1, max_size=6)):
        value = bytes((1, key, version)) + encode(data.draw(entities_of(RECORD_CLASSES[key][version])))
        harm = data.draw(st.sampled_from(("none", "none", "cut", "longer", "tag", "flip")))
        if harm == "cut":
            value = value[: data.draw(st.integers(0, len(value)))]
        elif harm == "longer":
            value += data.draw(st.binary(min_size=1, max_size=4))
        elif harm == "tag" and value.endswith(b"\0"):
            value = value[:-1] + b"\x01\x63\x01x"
        elif harm == "flip":
            flipped = bytearray(value)
            flipped[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            value = bytes(flipped)
        values += [value] * data.draw(st.sampled_from((1, 1, 2, 40)))
    for selection in SELECTIONS:
        assert_same_rows(build_batch(values, 7, 3, 1234), selection)


def test_secrets_are_redacted_natively() -> None:
    configs = [
        ConfigRecord(resource_type=4, resource_name="1", name=name, value="x")
        for name in ("ssl.keystore.password", "log.retention.ms", "ssl.keystore.password", "log.retention.ms")
    ]
    table = assert_same_rows(build_batch(list(map(encode_record, configs)), 7, 3, 0), Selection())
    texts = table.column("payload").to_pylist()
    assert ["[redacted]" in text for text in texts] == [True, False, True, False]
    assert ['"x"' in text for text in texts] == [False, True, False, True]


def test_damaged_logs_have_the_same_rows(history: Path) -> None:
    segment = min((history / "__cluster_metadata-0").glob("*.log"))
    log = segment.read_bytes()[:4_000]
    chance = random.Random(5)
    for changed in mutated([log], 11, 150):
        assert_same_rows(changed, Selection(names=RECORD_NAMES), chance.choice((300, 1_000, 1 << 20)))


def test_records_that_do_not_fill_their_batch_have_the_same_rows() -> None:
    values = [encode_record(ConfigRecord(resource_type=2, resource_name="t", name="a", value="b"))] * 3
    good = build_batch(values, 10, 3, 0)
    before = build_batch(values, 7, 3, 0)
    for place in range(61, len(good)):
        for bit in (1, 0x80):
            changed = bytearray(good)
            changed[place] ^= bit
            changed[17:21] = runs.crc32c(bytes(changed[21:])).to_bytes(4, "big")
            assert_same_rows(before + changed, Selection(names=RECORD_NAMES))
