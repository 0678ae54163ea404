"""All planted mistakes."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes import (
    in_control,
    in_image,
    in_lake,
    in_node,
    in_operator,
    in_raft,
    in_security,
    in_server,
    in_storage,
)

MISTAKES: Final = (
    *in_raft.MISTAKES,
    *in_control.MISTAKES,
    *in_node.MISTAKES,
    *in_storage.MISTAKES,
    *in_image.MISTAKES,
    *in_server.MISTAKES,
    *in_security.MISTAKES,
    *in_lake.MISTAKES,
    *in_operator.MISTAKES,
)
