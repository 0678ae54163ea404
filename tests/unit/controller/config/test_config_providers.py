"""Config providers: values in other files, as Kafka's DirectoryConfigProvider and FileConfigProvider read them."""

from pathlib import Path

import pytest
from kit.controller_parts import write_controller_properties
from quorate_controller.config import ConfigError, load_config

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "config.providers": "directory, file",
    "config.providers.directory.class": f"{PACKAGE}.DirectoryConfigProvider",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
}
LISTENER = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
}
JAAS = "listener.name.controller.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def problems(directory: Path, properties: dict[str, str]) -> str:
    """What is said about a file with these properties."""
    with pytest.raises(ConfigError) as caught:
        load_config(write_controller_properties(directory, PROVIDERS | properties))
    return str(caught.value)


def test_passwords_stand_in_files_of_their_own(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / "..data").mkdir(parents=True)
    (secret / "..data" / "node").write_text("hunter2")
    (secret / "node").symlink_to("..data/node")
    (tmp_path / "more.properties").write_text("alice = wonder land\n")
    login = (
        f'{MODULE} username="node" password="${{directory:{secret}:node}}" '
        f'user_node="${{directory:{secret}:node}}" user_alice="${{file:{tmp_path}/more.properties:alice}}" '
        'user_bob="${other:a:b}";'
    )
    file = write_controller_properties(tmp_path, PROVIDERS | LISTENER | {JAAS: login})
    config = load_config(file)
    assert config.login is not None
    assert config.login.password == "hunter2"
    sasl = config.listener_security["CONTROLLER"].sasl
    assert sasl is not None
    assert sasl.passwords == {"node": "hunter2", "alice": "wonder land", "bob": "${other:a:b}"}
    assert "hunter2" not in file.read_text()
    assert "hunter2" not in repr(config)
    assert not any("config.providers" in note for note in config.notes)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("${directory:@/secret:nobody}", "@/secret/nobody: No such file or directory"),
        (
            "${directory:@/secret:../more.properties}",
            "'../more.properties' is not the name of a file in @/secret",
        ),
        ("${file:@/more.properties:bob}", "@/more.properties has no property 'bob'"),
        ("${file:@/secret/binary:a}", "@/secret/binary: it is not UTF-8 text"),
        ("${directory:@/secret:node}", "is not in config.providers.directory.param.allowed.paths=@/other"),
    ],
)
def test_what_cannot_be_read_is_told_by_key_and_file(tmp_path: Path, variable: str, expected: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "node").write_text("hunter2")
    (tmp_path / "secret" / "binary").write_bytes(b"\xff")
    (tmp_path / "more.properties").write_text("alice=hunter2\n")
    given = {"log.dirs": variable.replace("@", str(tmp_path))}
    if "allowed" in expected:
        given["config.providers.directory.param.allowed.paths"] = str(tmp_path / "other")
    text = problems(tmp_path, given)
    assert f"log.dirs={given['log.dirs']}: " in text
    assert expected.replace("@", str(tmp_path)) in text
    assert "hunter2" not in text
