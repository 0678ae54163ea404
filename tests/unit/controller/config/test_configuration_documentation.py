"""docs/configuration.md speaks of keys that exist, and sorts them as the code does."""

import re
from pathlib import Path

import pytest
from quorate_controller.config import ConfigError, parse_config
from quorate_controller.config.keys import notes_on_ignored
from quorate_controller.config.listener_sasl import OAUTH_KEYS, SASL_KEYS
from quorate_controller.config.listener_security import LISTENER_TLS_KEYS
from quorate_protocol.kafka.config_names import AUTHORIZER_KEYS, OWN_KEYS
from quorate_protocol.kafka.config_schema import broker_definitions
from quorate_protocol.security.oauth import OAUTH_LOGIN_KEYS

DOCUMENT = Path(__file__).parents[4] / "docs" / "configuration.md"
MINIMAL = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/nowhere",
}


def section(heading: str) -> str:
    """The text under a heading of the second level."""
    return DOCUMENT.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def keys_in(text: str) -> set[str]:
    """The keys in the first column of the tables of a text."""
    cells = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+)", text, re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"[\w.]+", cell)}


def test_keys_exist() -> None:
    known = broker_definitions().keys() | OWN_KEYS.keys() | AUTHORIZER_KEYS | OAUTH_LOGIN_KEYS
    assert keys_in(DOCUMENT.read_text()) - known == set()


def test_our_own_keys_are_documented() -> None:
    assert keys_in(section("Our own keys")) == OWN_KEYS.keys()


def test_no_key_with_an_effect_is_noted_as_ignored() -> None:
    keys = keys_in(section("Keys with an effect"))
    assert len(keys) > 30
    assert notes_on_ignored(dict.fromkeys(keys, ""), LISTENER_TLS_KEYS | SASL_KEYS | OAUTH_KEYS) == ()


def test_the_keys_of_listeners_are_documented() -> None:
    for heading, keys in (("TLS", LISTENER_TLS_KEYS), ("SASL", SASL_KEYS), ("OAUTHBEARER", OAUTH_KEYS)):
        assert keys_in(DOCUMENT.read_text().partition(f"\n### {heading}\n")[2].partition("\n### ")[0]) == keys


@pytest.mark.parametrize(
    "key",
    [
        "authorizer.class.name",
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        "config.providers",
        "principal.builder.class",
    ],
)
def test_what_is_said_to_be_refused_is_refused(key: str) -> None:
    assert key in keys_in(section("What is refused"))
    with pytest.raises(ConfigError) as refusal:
        parse_config({**MINIMAL, key: "org.example.Anything"})
    assert any(problem.startswith(f"{key}=") for problem in refusal.value.problems)
