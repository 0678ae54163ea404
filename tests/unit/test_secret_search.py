"""The search for secrets finds them in whatever form they are, so that finding nothing means something."""

import base64
import html
import json
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.secret_search import files_below, homes_of

SECRET = 'kept-"secret"-<1>'
KEY = bytes(range(64, 96))
FORMS = {
    "a log line": f"login failed: password={SECRET}",
    "JSON": json.dumps({"event": "login", "error": f"bad {SECRET}"}),
    "a page": f"<td>{html.escape(SECRET)}</td>",
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "the first message of PLAIN": base64.b64encode(f"\0node\0{SECRET}".encode()).decode(),
    "the same of another user": base64.b64encode(f"\0admin\0{SECRET}!".encode()).decode(),
    "digits": SECRET.encode().hex(),
    "bytes": b"\0\1" + SECRET.encode() + b"\2",
}
KEY_FORMS = {
    "base64": base64.b64encode(KEY).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(KEY).decode(),
    "digits": KEY.hex().upper(),
    "bytes": b"\0\1" + KEY,
}


def test_a_secret_is_found_in_each_form_and_only_there() -> None:
    others = {"half of it": SECRET[: len(SECRET) // 2], "empty": "", "half of the key": KEY[: len(KEY) // 2]}
    places = {place: ["something else", text] for place, text in (FORMS | others).items()}
    assert homes_of({"secret": SECRET, "absent": "kept-secret-2"}, places) == {
        "secret": set(FORMS),
        "absent": set(),
    }
    places = {place: [text] for place, text in (KEY_FORMS | others).items()}
    assert homes_of({"key": KEY}, places) == {"key": set(KEY_FORMS)}


@pytest.mark.parametrize("column", ["texts", "bytes", "nested", "dictionary"])
def test_files_of_parquet_are_read(tmp_path: Path, column: str) -> None:
    filler = [zlib.crc32(b"%d" % number).to_bytes(4, "big").hex() * 4 for number in range(2_000)]
    texts = [*filler, SECRET, *filler]
    values = {
        "texts": pa.array(texts),
        "bytes": pa.array([text.encode() for text in texts]),
        "nested": pa.array([{"payload": [text]} for text in texts]),
        "dictionary": pa.array(texts).dictionary_encode(),
    }[column]
    folder = tmp_path / "table" / "day=1"
    folder.mkdir(parents=True)
    file = folder / "0.parquet"
    pq.write_table(
        pa.table({"number": range(len(texts)), column: values}),
        file,
        compression="zstd",
        write_statistics=False,
    )
    assert SECRET.encode() not in file.read_bytes()
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / "leak.json").write_text(json.dumps({"error": SECRET}))
    found = homes_of({"secret": SECRET}, files_below(tmp_path))
    assert found == {"secret": {"leak.json", "table/day=1/0.parquet"}}
