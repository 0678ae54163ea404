"""Formats simulated disks with the product's own code, with directory ids that depend on nothing but the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.simulator.world import CLUSTER_ID, EPOCH_MS, PORT
from quorate_controller.config import parse_format_target
from quorate_controller.directories.format import (
    FormatOptions,
    InitialController,
    QuorumChoice,
    format_directories,
)
from quorate_protocol.features import METADATA_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kit.simulator.world import Machine


def format_disk(
    machine: Machine,
    properties: Mapping[str, str],
    *,
    is_dynamic: bool,
    initial_voters: Sequence[Machine],
    metadata_version: int,
) -> None:
    """As `quorate controller format` does, with --initial-controllers or --no-initial-controllers if dynamic."""
    quorum = QuorumChoice.UNSPECIFIED
    if is_dynamic:
        quorum = QuorumChoice.INITIAL_CONTROLLERS if initial_voters else QuorumChoice.NO_INITIAL_CONTROLLERS
    options = FormatOptions(
        cluster_id=CLUSTER_ID,
        quorum=quorum,
        release_version=METADATA_VERSIONS[metadata_version].name,
        initial_controllers=tuple(
            InitialController(
                node_id=voter.node_id,
                host=f"node{voter.node_id}",
                port=PORT,
                directory_id=voter.directory_id,
            )
            for voter in initial_voters
        ),
    )
    format_directories(
        machine.disk,
        parse_format_target(properties),
        options,
        now_ms=EPOCH_MS,
        generate_directory_id=lambda: machine.directory_id,
    )
