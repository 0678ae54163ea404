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
