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
    """Goal: a starting controller, whose clock runs and whose listener is open, does not stand still for seconds on a
    busy machine; and it loads nothing that it does not need. Method: the modules at the time when the node is opened,
    with and without a listener for metrics.
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


async def test_a_policy_that_cannot_be_loaded_keeps_the_controller_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what a policy forbids is never allowed because the policy is missing. Method: name a module that there is
    not; the node is not opened, and the error has key, value and reason.
    """

    def open_node(*_: object, **__: object) -> None:
        raise OpenedError

    monkeypatch.setattr(process, "open_node", open_node)
    key, name = "create.topic.policy.class.name", "no_such_module:Topics"
    config = load_config(write_controller_properties(tmp_path, {**BOOTSTRAP_SERVERS, key: name}))
    with pytest.raises(process.StartError, match=f"{key}={name}: cannot be loaded: .*No module named"):
        await process._Process(config).serve()
