"""An AdminClient whose responses a test gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pytest
from quorate_admin.types.cluster import ClusterDescription, NodeDescription


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a method."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ScriptedAdmin:
    """Methods return what `responses` has: a value, an error to raise, or a function of the arguments.

    A method without a response is a mistake of the test or of the tool.
    """

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}
        self.calls: list[Call] = []
        self.config: Any = None

    def calls_of(self, name: str) -> list[Call]:
        """The calls of one method, in order."""
        return [call for call in self.calls if call.name == name]

    def __call__(self, config: Any) -> Self:
        """Stand for the class: creating an instance returns this object."""
        self.config = config
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name not in self.responses:
            raise AssertionError(f"{name} has no response in this test")

        async def method(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(Call(name, args, kwargs))
            reported = self.responses[name]
            if callable(reported):
                reported = reported(*args, **kwargs)
            if isinstance(reported, Exception):
                raise reported
            return reported

        return method


def brokers(*node_ids: int, racks: Sequence[str | None] = ()) -> ClusterDescription:
    """A cluster of these brokers, described."""
    return ClusterDescription(
        cluster_id="c",
        controller_id=1,
        nodes=tuple(
            NodeDescription(
                node_id=node_id, host="h", port=1, rack=racks[place] if racks else None, fenced=False
            )
            for place, node_id in enumerate(node_ids)
        ),
    )


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    """The client that tools get in place of a real one."""
    scripted = ScriptedAdmin()
    monkeypatch.setattr("quorate_admin.client.AdminClient", scripted)
    return scripted
