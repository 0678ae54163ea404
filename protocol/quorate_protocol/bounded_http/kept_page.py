"""A page that many may ask for and that is rendered once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_S: Final = 1.0


class KeptPage:
    """Renders a page at most once a second, however many ask for it. `clock` is monotonic, in seconds."""

    def __init__(self, render: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self._render = render
        self._clock = clock
        self._page = b""
        self._rendered_s: float | None = None

    def get(self) -> bytes:
        """Return the page, which is up to a second old."""
        now_s = self._clock()
        if self._rendered_s is None or now_s - self._rendered_s >= KEPT_S:
            self._page = self._render()
            self._rendered_s = now_s
        return self._page
