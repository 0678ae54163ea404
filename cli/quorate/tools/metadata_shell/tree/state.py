"""/image/features, /image/producerIds and /image/provenance."""

from datetime import UTC, datetime, timedelta

from quorate_protocol import features as levels
from quorate_protocol.image import ImageState, Provenance

from quorate.tools.metadata_shell.tree.nodes import Directory, Leaf, Node, fixed, value

_FINALIZED = "finalized_"
_METADATA_VERSION = "metadataVersion"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def features(image: ImageState) -> Directory:
    """Finalized levels (FeaturesImageNode); metadata.version by its name."""

    def finalized() -> dict[str, int]:
        return {name: level for name, level in image.features.items() if name != levels.METADATA_VERSION}

    def child(name: str) -> Node | None:
        if name == _METADATA_VERSION:
            return _metadata_version(image.metadata_version)
        if name.startswith(_FINALIZED):
            return value(finalized().get(name.removeprefix(_FINALIZED), 0))
        return None

    return Directory(lambda: (_METADATA_VERSION, *(_FINALIZED + name for name in finalized())), child)


def _metadata_version(level: int) -> Leaf:
    known = levels.METADATA_VERSIONS.get(level)
    if known is None:
        return Leaf(lambda: "Optional.empty", lambda: None)
    return Leaf(lambda: f"Optional[{known.name}]", lambda: known.name)


def producer_ids(image: ImageState) -> Directory:
    """The next producer id to be allocated."""
    return fixed({"nextProducerId": lambda: value(image.next_producer_id)})


def provenance(where: Provenance) -> Leaf:
    """The last record that the image contains."""
    last_offset = where.end_offset - 1
    return Leaf(
        lambda: f"offset {last_offset}, epoch {where.epoch}, time {_zoned(where.timestamp_ms)}",
        lambda: {"offset": last_offset, "epoch": where.epoch, "timestampMs": where.timestamp_ms},
    )


def _zoned(timestamp_ms: int) -> str:
    """As DateTimeFormatter.ISO_ZONED_DATE_TIME: no fraction where there is none."""
    time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    fraction = f".{timestamp_ms % 1000:03}".rstrip("0").rstrip(".")
    return f"{time:%Y-%m-%dT%H:%M:%S}{fraction}Z[UTC]"
