"""Mistakes in what is durable, and in which order."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_STORAGE: Final = "controller_node/quorate_controller/storage"
_TESTS: Final = "unit/controller/storage"
_WRITES_EPOCHS: Final = """        if len(self._epochs) != epoch_count:
            # Before the batches, whose checksums do not cover it: see checkpoint_files.
            write_leader_epochs(self._file_system, self._directory, self._epochs)
"""
_APPENDS: Final = "        self._segments[-1].append(batches, headers)\n"

_RESETS_FIRST: Final = """        self._reset_log(snapshot_id.offset)
        self._download.freeze()
        self._download = None
        self._forget"""

MISTAKES: Final = (
    Mistake(
        name="a small file renamed before it is durable",
        file=f"{_STORAGE}/filesystem.py",
        edits=(("        file.append(data)\n        file.sync()\n", "        file.append(data)\n"),),
        harm="an empty quorum-state after a power cut: a second vote in one epoch",
        tests=(f"{_TESTS}/test_controller_storage.py",),
    ),
    Mistake(
        name="the name of a small file is not durable",
        file=f"{_STORAGE}/filesystem.py",
        edits=(
            (
                "    file_system.rename(temporary, path)\n    file_system.sync_directory(path.parent)\n",
                "    file_system.rename(temporary, path)\n",
            ),
        ),
        harm="the former quorum-state after a power cut: a second vote in one epoch",
        tests=(f"{_TESTS}/test_controller_storage.py",),
    ),
    Mistake(
        name="a checkpoint named before it is durable",
        file=f"{_STORAGE}/snapshots.py",
        edits=(("        self._file.sync()\n        self._file.close()\n", "        self._file.close()\n"),),
        harm="a power cut leaves a damaged checkpoint, and the log before it is gone",
        tests=(f"{_TESTS}/test_controller_storage.py",),
    ),
    Mistake(
        name="the name of a checkpoint is not durable",
        file=f"{_STORAGE}/snapshots.py",
        edits=(("        file_system.sync_directory(self._path.parent)\n", ""),),
        harm="a power cut takes the checkpoint, and the log before it is gone",
        tests=(f"{_TESTS}/test_durable_checkpoints.py",),
    ),
    Mistake(
        name="the log is cut before the recovery point is lowered",
        file=f"{_STORAGE}/controller_storage.py",
        edits=(
            (
                "        self._lower_recovery_point(offset)\n        self.log.truncate_to(offset)\n",
                "        self.log.truncate_to(offset)\n",
            ),
        ),
        harm="a controller that crashes in a truncation refuses to start",
        tests=(f"{_TESTS}/test_controller_storage.py",),
    ),
    Mistake(
        name="the epochs are written after the batches",
        file=f"{_STORAGE}/log.py",
        edits=((_WRITES_EPOCHS, ""), (_APPENDS, _APPENDS + _WRITES_EPOCHS)),
        harm="a crash leaves batches whose epoch the epoch file does not have: rot of an epoch is not seen",
        tests=(f"{_TESTS}/test_log_model.py",),
    ),
    Mistake(
        name="truncated voters are found again at the next start",
        file=f"{_STORAGE}/log.py",
        edits=(
            (
                "[base for base in self._control_offsets if base < self.end_offset]",
                "[*self._control_offsets]",
            ),
        ),
        harm="a start reads a VotersRecord where the log has something else, or ends",
        tests=(f"{_TESTS}/test_metadata_log.py",),
    ),
    Mistake(
        name="retention deletes the segment that the log start is in",
        file=f"{_STORAGE}/log.py",
        edits=(("self._segments[1].base_offset <= offset:", "self._segments[0].base_offset < offset:"),),
        harm="records behind the log start are lost",
        tests=(f"{_TESTS}/test_controller_storage.py",),
    ),
    Mistake(
        name="the directory of a vote is not read back",
        file=f"{_STORAGE}/quorum_state.py",
        edits=(('directory_id = uuid_from_text(str(fields["votedDirectoryId"]))', "directory_id = None"),),
        harm="after a restart a vote counts for each directory of its node: two votes in one epoch",
        tests=(f"{_TESTS}/test_controller_storage.py",),
    ),
    Mistake(
        name="good batches that were never synced are taken for durable after a restart",
        file=f"{_STORAGE}/segment.py",
        edits=(
            (
                "        self._log.sync()\n        self._index.close_time_index()\n",
                "        self._index.close_time_index()\n",
            ),
        ),
        harm="a killed process promises records that a power cut still takes",
        tests=(f"{_TESTS}/test_log_model.py",),
    ),
    Mistake(
        name="pages that a failed sync lost are taken for written",
        file=f"{_STORAGE}/segment.py",
        edits=(
            (
                "        self._log.rewrite_from(self._position_of(max(durable_end_offset, self.base_offset)))\n",
                "",
            ),
        ),
        harm="a power cut after a restart loses acknowledged records",
        tests=(f"{_TESTS}/test_failed_sync.py",),
    ),
    Mistake(
        name="old checkpoints stay after a restore",
        file=f"{_STORAGE}/controller_storage.py",
        edits=(
            (
                "        self._reset_log(snapshot_id.offset)\n        self._forget_snapshots_before(snapshot_id)\n",
                "        self._reset_log(snapshot_id.offset)\n",
            ),
        ),
        harm="checkpoints before the log start are served to peers",
        tests=("unit/controller/storage/test_controller_storage.py",),
    ),
    Mistake(
        name="the log is reset before the checkpoint has its name",
        file=f"{_STORAGE}/controller_storage.py",
        edits=(
            (
                "        self._download.freeze()\n        self._download = None\n        # After",
                "        # After",
            ),
            (
                "        self._reset_log(snapshot_id.offset)\n        self._forget",
                _RESETS_FIRST,
            ),
        ),
        harm="a power cut leaves neither the log nor the checkpoint",
        tests=("unit/controller/storage/test_controller_storage.py",),
    ),
)
