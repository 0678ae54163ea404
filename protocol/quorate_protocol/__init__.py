"""Kafka's protocol for controllers: messages, records, batches, the metadata image."""

import sys


def _import_kio_alone() -> None:
    """Import kio without hypothesis: where that is installed, kio registers strategies for it, for 0.2 s."""
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401, PLC0415
    finally:
        del sys.modules["hypothesis"]


_import_kio_alone()
