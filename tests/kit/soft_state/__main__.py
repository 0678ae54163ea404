"""Writes docs/soft-state.md."""

from kit.soft_state.page import PAGE, rendered

PAGE.write_text(rendered(), encoding="utf-8")
