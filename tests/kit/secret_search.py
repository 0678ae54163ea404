"""Searches for secrets in everything that a run wrote to files, to output and to others.

A search that finds nothing proves nothing by itself. So a search also plants a text that is no secret in each
place, where a defect would leave a secret, and lets the same call of :func:`homes_of` find it.
"""

import base64
import html
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

PARQUET: Final = ".parquet"
FORM_SIZE_BYTES_MIN: Final = 8
"""Shorter texts would be found in anything."""

Secret = str | bytes
Place = Iterable[str | bytes]
"""The texts of one place."""


def homes_of(secrets: Mapping[str, Secret], places: Mapping[str, Place]) -> dict[str, set[str]]:
    """The names of the places that have a secret in some form, for each of `secrets` by its name."""
    forms = {name: forms_of(secret) for name, secret in secrets.items()}
    found: dict[str, set[str]] = {name: set() for name in secrets}
    for place, texts in places.items():
        for text in texts:
            content = text if isinstance(text, bytes) else text.encode()
            for name, wanted in forms.items():
                if place not in found[name] and any(form in content for form in wanted):
                    found[name].add(place)
    return found


def forms_of(secret: Secret) -> set[bytes]:
    """How a secret may be written: as it is, in hexadecimal digits, escaped for JSON or HTML, in base64.

    What a secret is a part of may be in base64, too: the user and the password of PLAIN, for instance. Of the three
    ways to cut it into groups of three bytes, the groups that it fills alone are searched.
    """
    plain = secret if isinstance(secret, bytes) else secret.encode()
    forms = {plain, plain.hex().encode(), plain.hex().upper().encode()}
    if isinstance(secret, str):
        forms |= {json.dumps(secret)[1:-1].encode(), html.escape(secret).encode()}
    for skipped in range(3):
        filled = plain[skipped : skipped + (len(plain) - skipped) // 3 * 3]
        forms |= {base64.b64encode(filled), base64.urlsafe_b64encode(filled)}
    assert min(map(len, forms)) >= FORM_SIZE_BYTES_MIN, "too short to be searched for"
    return forms


def files_below(directory: Path) -> dict[str, list[bytes]]:
    """The content of each file below a directory, by its path from there; of Parquet also what its columns hold."""
    return {
        str(file.relative_to(directory)): [file.read_bytes(), *_columns_of(file)]
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


def _columns_of(file: Path) -> Iterator[bytes]:
    """The bytes of all values, one column after the other. In the file they are compressed."""
    if file.suffix != PARQUET or not file.stat().st_size:
        return
    for column in pq.ParquetFile(file).read().columns:
        for chunk in column.chunks:
            values = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
            yield b"".join(buffer.to_pybytes() for buffer in values.buffers() if buffer is not None)
