"""Which function of an entity class runs: one of closures for its first uses, then one that is generated.

To make closures of a class takes 0.05 ms, to generate a function half a millisecond: that is repaid after some two
hundred uses. Most processes are short-lived and use most classes a few times. A controller uses a few classes all the
time.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from quorate_protocol.wire.schema import EntityClass

CodecFunction = TypeVar("CodecFunction", bound=Callable[[Any, Any], Any])

FunctionOf = Callable[[EntityClass], CodecFunction]

CLOSURE_USES: Final = 200
"""How often the closures of a class are used before its function is generated."""


class CodecFunctions(dict[EntityClass, CodecFunction]):
    """The function to use for each entity class. What is in it changes, so it is asked at each use.

    Threads may use it at once: each change is one assignment, and the worst that can happen is that a class is
    generated twice or a few uses later.
    """

    def __init__(
        self,
        close: "Callable[[EntityClass, CodecFunctions[CodecFunction]], CodecFunction]",
        generate: Callable[[EntityClass, FunctionOf[CodecFunction]], CodecFunction],
    ) -> None:
        """``close`` and ``generate`` make a function of a class; with the second argument they find nested ones."""
        super().__init__()
        self._close = close
        self._generate = generate
        self._generated: dict[EntityClass, CodecFunction] = {}

    def __missing__(self, entity_type: EntityClass) -> CodecFunction:
        """Make the closures of a class, at its first use."""
        # Another thread may have added it meanwhile, and even have generated it.
        return self.setdefault(entity_type, self._counted(entity_type))

    def generated(self, entity_type: EntityClass) -> CodecFunction:
        """Generate the function of a class and those of its structs, and use them from now on."""
        function = self._generated.get(entity_type)
        if function is None:
            function = self._generated[entity_type] = self._generate(entity_type, self.generated)
            self[entity_type] = function
        return function

    def _counted(self, entity_type: EntityClass) -> CodecFunction:
        """Return the closures of a class, with a counter that goes with them."""
        function, uses = self._close(entity_type, self), 0

        def counted(first: Any, second: Any) -> Any:
            nonlocal uses
            uses += 1
            if uses > CLOSURE_USES:
                return self.generated(entity_type)(first, second)
            return function(first, second)

        return counted  # type: ignore[return-value]
