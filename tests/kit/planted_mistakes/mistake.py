"""One planted mistake: texts in one file of the product, and the texts in their places."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Each old text of `edits` occurs exactly once in `file`, a path in the repository."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    """Old and new texts."""
    harm: str
    """The effect on a cluster."""
    tests: tuple[str, ...]
    """The tests that are expected to find it: paths in `tests/`, or node ids. All of them together take seconds."""
    shape: str = "chance"
    """The shape of the simulation that is most likely to find it."""

    def planted_in(self, source: str) -> str:
        """The source with the mistake.

        Raises:
            ValueError: an old text does not occur exactly once.
        """
        for old, new in self.edits:
            count = source.count(old)
            if count != 1:
                raise ValueError(f"{self.name}: {old!r} occurs {count} times in {self.file}, not once")
            source = source.replace(old, new)
        return source
