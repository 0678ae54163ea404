"""One reader of input from others: its corpus, and the exceptions that it may raise."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).parent / "kept"
"""Inputs that once broke a reader, in a folder for each target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader, and what it is tried with."""

    name: str
    read: Callable[[bytes], object]
    good: Callable[[], Iterator[bytes]]
    """Valid inputs."""
    refusals: tuple[type[Exception], ...] = ()
    """The exceptions that it may raise for invalid input."""
    compares_arrays: bool = False
    """Whether it compares arrays of numpy. Atheris 3.0 never frees what a comparison results in."""

    def corpus(self) -> Sequence[bytes]:
        """Valid inputs, and those that once broke it."""
        kept = sorted((KEPT / self.name).glob("*"))
        return tuple(dict.fromkeys((*self.good(), *(path.read_bytes() for path in kept))))

    def attempt(self, data: bytes) -> None:
        """Read; whatever is raised out of here is a defect."""
        with suppress(*self.refusals):
            self.read(data)


def as_text(data: bytes) -> str:
    """Text of any bytes, for readers of files that were decoded."""
    return data.decode("utf-8", "replace")
