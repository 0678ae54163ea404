"""`format --add-scram`: the records of users, and what is refused."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from kit.controller_parts import write_controller_properties
from quorate_controller import commands
from quorate_controller.directories.format import FormatError
from quorate_controller.directories.scram import parse_scram_users, read_scram_users
from quorate_controller.storage.bootstrap import read_bootstrap_records
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.records.generated import UserScramCredentialRecord
from typer.testing import CliRunner

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
"""The credential of the example in RFC 7677, whose user is `user` and whose password is `pencil`."""
PENCIL = UserScramCredentialRecord(
    name="user",
    mechanism=1,
    salt=SALT,
    stored_key=base64.b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="),
    server_key=base64.b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="),
    iterations=4096,
)
SALTED = base64.b64encode(hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)).decode()


def parsed(*entries: str) -> tuple[UserScramCredentialRecord, ...]:
    """The records; a salt that is not given is that of the RFC."""
    return parse_scram_users(entries, generate_salt=lambda: SALT)


@pytest.mark.parametrize(
    "entry",
    [
        "SCRAM-SHA-256=[name=user,password=pencil]",
        ' SCRAM-SHA-256=[name="user",password="pencil",iterations=4096] ',
        f"SCRAM-SHA-256=[name=user,salt={base64.b64encode(SALT).decode()},password=pencil]",
        f'SCRAM-SHA-256=[name=user,salt="{base64.b64encode(SALT).decode()}",saltedpassword="{SALTED}"]',
    ],
)
def test_a_user_gets_the_keys_of_the_rfc(entry: str) -> None:
    assert parsed(entry) == (PENCIL,)


def test_users_have_a_mechanism_and_iterations_each() -> None:
    records = parsed(
        "SCRAM-SHA-512=[name=a,password=x,iterations=16384]",
        "SCRAM-SHA-256=[name=a,password=x]",
        "SCRAM-SHA-256=[name=b=c,password=x=y]",
    )
    assert [
        (record.name, record.mechanism, record.iterations, len(record.stored_key)) for record in records
    ] == [
        ("a", 2, 16384, 64),
        ("a", 1, 4096, 32),
        ("b=c", 1, 4096, 32),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("SCRAM-SHA-256", "not of the form"),
        ("SCRAM-SHA-256=name=a,password=secret", "not of the form"),
        ("SCRAM-SHA-256=[name=a,password=secret", "not of the form"),
        (
            "PLAIN=[name=a,password=secret]",
            "the mechanism 'PLAIN' must be one of SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ("SCRAM-SHA-256=[password=secret]", "name must have from 1 to 32767 bytes"),
        ("SCRAM-SHA-256=[name=" + "a" * 32768 + ",password=secret]", "name must have from 1"),
        ("SCRAM-SHA-256=[name=a,password=se,cret]", "between the brackets must be KEY=VALUE"),
        ("SCRAM-SHA-256=[name=a,password=secret,owner=b]", "with the keys name, password, iterations"),
        ("SCRAM-SHA-256=[name=a,password=secret,name=b]", "name appears twice"),
        ("SCRAM-SHA-256=[name=a]", "exactly one of password and saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=]", "password must not be empty"),
        ("SCRAM-SHA-256=[name=a,password=secret,saltedpassword=c2VjcmV0]", "exactly one of password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "saltedpassword needs salt, too"),
        ("SCRAM-SHA-256=[name=a,salt=c2E=,saltedpassword=secret!]", "saltedpassword must be base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,salt=]", "salt must be base64 of at least one byte"),
        (
            "SCRAM-SHA-256=[name=a,password=secret,iterations=4095]",
            "iterations must be a number from 4096 to",
        ),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=16385]", "to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=" + "9" * 5000 + "]", "to 16384"),
    ],
)
def test_a_wrong_entry_is_named_without_its_secret(entry: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parsed(entry)
    assert str(caught.value).startswith("--add-scram: ")
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_user_appears_once_for_each_mechanism() -> None:
    with pytest.raises(FormatError, match="user 'a' appears twice with one mechanism"):
        parsed(*["SCRAM-SHA-256=[name=a,password=x]"] * 2)


def test_format_writes_the_users_behind_the_levels(tmp_path: Path) -> None:
    config = write_controller_properties(tmp_path)
    arguments = ["format", "-c", str(config), "-t", "abc", "-s", "-S", "SCRAM-SHA-512=[name=a,password=x]"]
    result = CliRunner().invoke(commands.app, [*arguments, "-r", "3.4"])
    assert (result.exit_code, result.stderr) == (
        1,
        "error: SCRAM is only supported in metadata.version 3.5-IV2 or later.\n",
    )
    assert CliRunner().invoke(commands.app, arguments).exit_code == 0
    user = read_bootstrap_records(OsFileSystem(), tmp_path / "data").records[-1]
    assert isinstance(user, UserScramCredentialRecord)
    assert (user.name, user.mechanism) == ("a", 2)
    assert re.fullmatch(b"[0-9a-z]{20,26}", user.salt), "as the salts of Kafka's tools"


def test_users_come_from_files(tmp_path: Path) -> None:
    users = tmp_path / "users"
    (users / "..data").mkdir(parents=True)
    for name, password in (("user", "pencil"), ("other", "a,b]=[")):
        (users / "..data" / name).write_text(password)
        (users / name).symlink_to(f"..data/{name}")
    found = read_scram_users([f"SCRAM-SHA-256={users}"], generate_salt=lambda: SALT)
    assert [record.name for record in found] == ["other", "user"]
    assert found[1] == PENCIL
    config = write_controller_properties(tmp_path, {"controller.quorum.bootstrap.servers": "127.0.0.1:9093"})
    arguments = ["format", "-c", str(config), "-t", "4L6g3nShT-eMCtK--X86sw", "--standalone"]
    ran = CliRunner().invoke(commands.app, [*arguments, "--add-scram-from", f"SCRAM-SHA-512={users}"])
    assert ran.exit_code == 0, ran.output
    records = read_bootstrap_records(OsFileSystem(), tmp_path / "data").records
    assert {record.name for record in records if isinstance(record, UserScramCredentialRecord)} == {
        "user",
        "other",
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("users", "'users' is not of the form SCRAM-SHA-512=DIRECTORY"),
        ("PLAIN=users", "the mechanism 'PLAIN' must be one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-512=/nowhere", "/nowhere: No such file or directory"),
        ("SCRAM-SHA-512=@", "@/empty: a password must not be empty"),
    ],
)
def test_files_that_cannot_be_used_are_told(tmp_path: Path, entry: str, expected: str) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(FormatError) as caught:
        read_scram_users([entry.replace("@", str(tmp_path))], generate_salt=lambda: SALT)
    assert str(caught.value) == f"--add-scram-from: {expected.replace('@', str(tmp_path))}"
