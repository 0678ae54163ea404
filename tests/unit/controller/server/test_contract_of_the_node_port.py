"""The node of the server's tests has the interface of the real one: the driver's."""

import inspect
from typing import Any

import pytest
from quorate_controller.driver import Driver
from quorate_controller.node.port import NodePort

NOT_NEEDED = {"credentials"}
"""Listeners with SASL are tested with credentials of their own."""


@pytest.mark.parametrize("name", sorted(name for name in vars(NodePort) if not name.startswith("_")))
def test_a_member_is_as_in_the_port(rig: Any, name: str) -> None:
    """A method that gets another parameter, or another name, does not live on in the tests."""
    in_port = getattr(NodePort, name)
    fake = type(rig.node)
    for implementation in (Driver, fake):
        if implementation is fake and name in NOT_NEEDED:
            continue
        if callable(in_port):
            parameters = [_names(getattr(side, name)) for side in (NodePort, implementation)]
            assert parameters[0] == parameters[1], implementation
        else:
            assert hasattr(rig.node if implementation is fake else implementation, name), implementation


def _names(method: Any) -> list[str]:
    return [name.lstrip("_") for name in inspect.signature(method).parameters]
