"""In which order the parts of a controller are opened."""

import sys
from pathlib import Path

import pytest
from kit.controller_parts import BOOTSTRAP_SERVERS, write_controller_properties
from quorate_controller import process
from quorate_controller.config import load_config

PAGES = "quorate_controller.server.http"


class OpenedError(Exception):
    """The node was about to be opened."""


@pytest.mark.parametrize("listener", [None, "127.0.0.1:9400"])
async def test_libraries_are_loaded_before_the_node_is_opened(
    listener: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting controller, whose clock runs and whose listener is open, does not stand still for seconds on
    a busy machine; and it loads nothing that it does not need.
    """
    monkeypatch.delitem(sys.modules, PAGES, raising=False)
    loaded: list[bool] = []

    def open_node(*_: object, **__: object) -> None:
        loaded.append(PAGES in sys.modules)
        raise OpenedError

    monkeypatch.setattr(process, "open_node", open_node)
    pages = {} if listener is None else {"quorate.http.listener": listener}
    config = load_config(write_controller_properties(tmp_path, {**BOOTSTRAP_SERVERS, **pages}))
    with pytest.raises(OpenedError):
        await process._Process(config).serve()
    assert loaded == [listener is not None]


JWKS = "quorate_controller.server.jwks"
OAUTH = "listener.name.controller.oauthbearer"
CLASSES = "org.apache.kafka.common.security.oauthbearer"


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_what_verifies_tokens_is_loaded_only_for_them(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyJWT and cryptography cost nothing where no listener takes tokens."""
    monkeypatch.delitem(sys.modules, JWKS, raising=False)
    monkeypatch.delitem(sys.modules, "quorate_controller.security.bearer_tokens", raising=False)
    loaded: list[bool] = []

    def open_node(*_: object, **__: object) -> None:
        loaded.append(JWKS in sys.modules)
        raise OpenedError

    monkeypatch.setattr(process, "open_node", open_node)
    config = load_config(write_controller_properties(tmp_path, {**BOOTSTRAP_SERVERS, **sasl(mechanism)}))
    with pytest.raises(OpenedError):
        await process._Process(config).serve()
    assert loaded == [mechanism == "OAUTHBEARER"]


def sasl(mechanism: str) -> dict[str, str]:
    """A listener with SASL; controllers log in with PLAIN."""
    login = 'PlainLoginModule required username="c" password="s" user_c="s";'
    return {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.{login}",
        f"{OAUTH}.sasl.jaas.config": f"{CLASSES}.OAuthBearerLoginModule required;",
        f"{OAUTH}.sasl.server.callback.handler.class": f"{CLASSES}.OAuthBearerValidatorCallbackHandler",
        f"{OAUTH}.sasl.oauthbearer.jwks.endpoint.url": "file:/jwks.json",
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": "file:/jwks.json",
    }


async def test_without_its_library_oauthbearer_keeps_the_controller_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, JWKS, raising=False)
    monkeypatch.delitem(sys.modules, "quorate_controller.security.bearer_tokens", raising=False)
    monkeypatch.setitem(sys.modules, "jwt", None)
    config = load_config(write_controller_properties(tmp_path, {**BOOTSTRAP_SERVERS, **sasl("OAUTHBEARER")}))
    with pytest.raises(process.StartError, match=r"pip install 'quorate\[oauthbearer\]'"):
        await process._Process(config).serve()


async def test_a_policy_that_cannot_be_loaded_keeps_the_controller_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_node(*_: object, **__: object) -> None:
        raise OpenedError

    monkeypatch.setattr(process, "open_node", open_node)
    key, name = "create.topic.policy.class.name", "no_such_module:Topics"
    config = load_config(write_controller_properties(tmp_path, {**BOOTSTRAP_SERVERS, key: name}))
    with pytest.raises(process.StartError, match=f"{key}={name}: cannot be loaded: .*No module named"):
        await process._Process(config).serve()
