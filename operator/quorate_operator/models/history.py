"""`spec.history` of a KafkaController: the volume that receives the metadata log, and the schedule of its ingest."""

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from quorate_operator.models.base import Duration, Image, Model, ResourceName, Size, Text, duration_ms, rules
from quorate_operator.models.pod_templates import Resources

SEGMENT_INTERVAL_MS_MIN = 60_000
SHIPPED_DIRECTORY = "shipped"
"""The directory on the volume that `quorate controller ship` writes, beside the lake."""

_MACROS = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
_CRON_PATTERN = r"^(@[a-z]{5,8}|[0-9*/,-]+ [0-9*/,-]+ [0-9*/,?-]+ [0-9A-Za-z*/,-]+ [0-9A-Za-z*/,?-]+)$"
_CRON_FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("day of week", 0, 6),
)
_WEEKDAY = 4
_EXTENDED_WEEKDAY = re.compile(r"(^|[,-])0*7|L")
"""7 for Sunday and 5L for the last Friday: cronsim accepts them, Kubernetes does not."""
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def _check_schedule(value: str) -> str:
    """Check a schedule as the API server would when the CronJob is created (robfig/cron, ParseStandard)."""
    if value in _MACROS:
        return value
    parts = value.split(" ")
    if len(parts) != len(_CRON_FIELDS):
        raise ValueError("must be five fields, minute hour day month weekday, or @hourly, @daily, @weekly")
    for number, (part, (name, first, last)) in enumerate(zip(parts, _CRON_FIELDS, strict=True)):
        if not _is_cron_field(number, part):
            raise ValueError(f"{name}: {part!r}: must be *, or numbers from {first} to {last}")
    return value


def _is_cron_field(number: int, part: str) -> bool:
    fields = ["*"] * len(_CRON_FIELDS)
    fields[number] = part.replace("?", "*")
    try:
        CronSim(" ".join(fields), _ANY_TIME)
    except CronSimError:
        return False
    return number != _WEEKDAY or _EXTENDED_WEEKDAY.search(part) is None


def _check_segment_interval(value: str) -> str:
    if duration_ms(value) < SEGMENT_INTERVAL_MS_MIN:
        raise ValueError("must be 1m or more: each segment is three files on every controller")
    return value


def _check_lake(value: str) -> str:
    if value == SHIPPED_DIRECTORY or value.startswith(f"{SHIPPED_DIRECTORY}/"):
        raise ValueError(f"must not be in {SHIPPED_DIRECTORY}, which holds the shipped log")
    return value


Schedule = Annotated[
    str, StringConstraints(max_length=100, pattern=_CRON_PATTERN), AfterValidator(_check_schedule)
]
LakePath = Annotated[
    str,
    StringConstraints(
        max_length=253, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$"
    ),
    AfterValidator(_check_lake),
]


class HistoryStorage(Model):
    """The volume that is created for a history and outlives the cluster."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": "has(self.className) == has(oldSelf.className) && "
                "(!has(self.className) || self.className == oldSelf.className) && "
                "self.accessMode == oldSelf.accessMode",
                "message": "className and accessMode are immutable: the volume has them; use another claim",
            },
            {
                "rule": "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
                "message": "size can't be reduced: volumes only grow",
            },
        )
    )

    size: Size = Field(description="The requested size. It can grow, but not shrink.")
    class_name: Text | None = Field(
        default=None, description="The storage class. Default: the default class of Kubernetes."
    )
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        default="ReadWriteMany",
        description="With ReadWriteOnce, all controllers and the ingest run on one Kubernetes node.",
    )


class History(Model):
    """Keeps the metadata log's closed segments and checkpoints on a volume, and ingests them into a lake."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": "has(self.claimName) != has(self.storage)",
                "message": "must have either storage, for a new volume, or claimName, for an existing one",
            },
            {
                "rule": f"self.lake != '{SHIPPED_DIRECTORY}' && !self.lake.startsWith('{SHIPPED_DIRECTORY}/')",
                "message": f"lake: must not be in {SHIPPED_DIRECTORY}, which holds the shipped log",
            },
        )
    )

    storage: HistoryStorage | None = Field(
        default=None, description="The volume that is created. It is kept when the history is switched off."
    )
    claim_name: ResourceName | None = Field(
        default=None,
        description="An existing PersistentVolumeClaim, instead of storage. All controllers mount it.",
    )
    segment_interval: Annotated[Duration, AfterValidator(_check_segment_interval)] = Field(
        default="1h",
        description="The age at which a segment is closed, and then shipped: metadata.log.segment.ms.",
    )
    schedule: Schedule = Field(
        default="17 * * * *",
        description="When shipped files are ingested into the lake: the schedule of a CronJob, in UTC.",
    )
    suspend: bool = Field(default=False, description="Suspends the ingest while true.")
    lake: LakePath = Field(default="lake", description="The directory of the lake on the volume.")
    resources: Resources = Field(
        default_factory=Resources,
        description="Requests and limits of the ingest. Default: memory from 1Gi to 4Gi.",
    )
    image: Image | None = Field(
        default=None, description="The image of the ingest. Default: the operator's --lake-image."
    )

    @model_validator(mode="after")
    def _has_one_volume(self) -> Self:
        if (self.storage is None) == (self.claim_name is None):
            raise ValueError("must have either storage, for a new volume, or claimName, for an existing one")
        return self
