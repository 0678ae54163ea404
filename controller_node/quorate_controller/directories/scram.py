"""SCRAM users of a new cluster: from `kafka-storage format --add-scram` (Kafka's ScramParser), or from files."""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from quorate_protocol.files import read_bounded
from quorate_protocol.kafka.enums import SCRAM_ITERATIONS_MIN, ScramMechanism
from quorate_protocol.records.generated import UserScramCredentialRecord

from quorate_controller.control.scram_credentials import ITERATIONS_MAX, credential_record
from quorate_controller.directories.format import FormatError

_FORM: Final = "SCRAM-SHA-256=[name=USER,password=PASSWORD]"
_MECHANISMS: Final = {
    mechanism.mechanism_name: mechanism
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
}
_KEYS: Final = ("name", "password", "iterations", "salt", "saltedpassword")
_NAME_BYTES_MAX: Final = 32767
_PASSWORD_BYTES_MAX: Final = 4096


def parse_scram_users(
    entries: Iterable[str], *, generate_salt: Callable[[], bytes]
) -> tuple[UserScramCredentialRecord, ...]:
    """The records for `SCRAM-SHA-256=[name=alice,password=secret]` each.

    `iterations` and `salt` (base64) are optional; `saltedpassword` (base64) with `salt` replaces `password`. Kafka
    splits at each comma, so that a password with a comma can only be given salted.

    Raises:
        FormatError: an entry has another form. The message has no part of the entry that can be a secret.
    """
    found: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for entry in entries:
        record = _record(entry, generate_salt)
        key = (record.name, record.mechanism)
        if key in found:
            raise FormatError(f"--add-scram: user {record.name!r} appears twice with one mechanism")
        found[key] = record
    return tuple(found.values())


def read_scram_users(
    entries: Iterable[str], *, generate_salt: Callable[[], bytes]
) -> tuple[UserScramCredentialRecord, ...]:
    """The records for `SCRAM-SHA-512=DIRECTORY` each: a file for each user, named after it, with the password.

    Kubernetes mounts Secrets in this form. Names that begin with a dot are skipped: they are Kubernetes' own.

    Raises:
        FormatError: an entry has another form, or a file can't be used. The message has no password.
    """
    found: list[UserScramCredentialRecord] = []
    for entry in entries:
        name, equals, directory = entry.partition("=")
        if not equals or not directory:
            raise FormatError(f"--add-scram-from: {entry!r} is not of the form SCRAM-SHA-512=DIRECTORY")
        mechanism = _MECHANISMS.get(name)
        if mechanism is None:
            raise FormatError(
                f"--add-scram-from: the mechanism {name!r} must be one of {', '.join(_MECHANISMS)}"
            )
        found += (
            credential_record(
                user,
                mechanism,
                salt=(salt := generate_salt()),
                salted_password=hashlib.pbkdf2_hmac(
                    mechanism.hash_name, password, salt, SCRAM_ITERATIONS_MIN
                ),
                iterations=SCRAM_ITERATIONS_MIN,
            )
            for user, password in _passwords(Path(directory)).items()
        )
    return tuple(found)


def _passwords(directory: Path) -> dict[str, bytes]:
    try:
        files = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise FormatError(f"--add-scram-from: {directory}: {error.strerror}") from None
    found = {}
    for file in files:
        try:
            found[file.name] = read_bounded(file, _PASSWORD_BYTES_MAX)
        except OSError as error:
            raise FormatError(f"--add-scram-from: {file}: {error.strerror}") from None
        except ValueError as error:
            raise FormatError(f"--add-scram-from: {file}: {error}") from None
        if not found[file.name]:
            raise FormatError(f"--add-scram-from: {file}: a password must not be empty")
    return found


def _record(entry: str, generate_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    name, equals, text = entry.strip().partition("=")
    if not equals or not text.startswith("[") or not text.endswith("]"):
        raise FormatError(f"--add-scram: an entry is not of the form {_FORM}")
    mechanism = _MECHANISMS.get(name)
    if mechanism is None:
        raise FormatError(f"--add-scram: the mechanism {name!r} must be one of {', '.join(_MECHANISMS)}")
    values = _values(text[1:-1])
    user = values.get("name", "")
    if not user or len(user.encode()) > _NAME_BYTES_MAX:
        raise FormatError(f"--add-scram: name must have from 1 to {_NAME_BYTES_MAX} bytes")
    iterations = _iterations(values.get("iterations", str(SCRAM_ITERATIONS_MIN)))
    salt = _decoded("salt", values["salt"]) if "salt" in values else generate_salt()
    salted = _salted_password(mechanism, values, salt, iterations)
    return credential_record(user, mechanism, salt=salt, salted_password=salted, iterations=iterations)


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in _KEYS:
            raise FormatError(
                f"--add-scram: between the brackets must be KEY=VALUE, with the keys {', '.join(_KEYS)}"
            )
        if key in values:
            raise FormatError(f"--add-scram: {key} appears twice")
        is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        values[key] = value[1:-1] if is_quoted else value
    return values


def _iterations(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(ITERATIONS_MAX))
    if not is_number or not SCRAM_ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise FormatError(
            f"--add-scram: iterations must be a number from {SCRAM_ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    return int(text)


def _salted_password(
    mechanism: ScramMechanism, values: dict[str, str], salt: bytes, iterations: int
) -> bytes:
    password, salted = values.get("password"), values.get("saltedpassword")
    if (password is None) == (salted is None):
        raise FormatError("--add-scram: exactly one of password and saltedpassword is needed")
    if password is not None:
        if not password:
            raise FormatError("--add-scram: password must not be empty")
        return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    if "salt" not in values:
        raise FormatError("--add-scram: saltedpassword needs salt, too")
    return _decoded("saltedpassword", salted or "")


def _decoded(key: str, text: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded:
        raise FormatError(f"--add-scram: {key} must be base64 of at least one byte")
    return decoded
