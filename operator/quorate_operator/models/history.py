"""What a quorum says of its history: where its metadata log is shipped to, and when a lake is made of it."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from quorate_operator.models.base import Duration, Image, Model, ResourceName, Size, Text, duration_ms, rules
from quorate_operator.models.pods import Resources

SEGMENT_INTERVAL_MS_MIN = 60_000
SHIPPED_DIRECTORY = "shipped"
"""On the volume, beside the lake: what `quorate controller ship` writes."""

_MACROS = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_CRON_PATTERN = r"^(@[a-z]{5,8}|[0-9*/,-]+ [0-9*/,-]+ [0-9*/,?-]+ [0-9A-Za-z*/,-]+ [0-9A-Za-z*/,?-]+)$"
_ITEM = re.compile(r"(?:(?P<any>[*?])|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[1-9][0-9]?))?")


class _CronField(NamedTuple):
    name: str
    first: int
    last: int
    words: Sequence[str] = ()


_CRON_FIELDS = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of month", 1, 31),
    _CronField("month", 1, 12, _MONTHS),
    _CronField("day of week", 0, 6, _WEEKDAYS),
)


def _check_schedule(value: str) -> str:
    """As Kubernetes' CronJob takes it; its own refusal would come only when the job is made."""
    if value in _MACROS:
        return value
    parts = value.split(" ")
    if len(parts) != len(_CRON_FIELDS):
        raise ValueError("must be five fields, minute hour day month weekday, or @hourly, @daily, @weekly")
    for part, field in zip(parts, _CRON_FIELDS, strict=True):
        if not all(_is_cron_item(item, field) for item in part.split(",")):
            raise ValueError(
                f"{field.name}: {part!r}: must be *, or numbers from {field.first} to {field.last}"
            )
    return value


def _is_cron_item(item: str, field: _CronField) -> bool:
    found = _ITEM.fullmatch(item)
    if found is None:
        return False
    if found["any"]:
        return True
    bounds = [_cron_number(text, field) for text in (found["first"], found["last"] or found["first"])]
    return None not in bounds and bounds == sorted(bounds, key=lambda bound: bound or 0)


def _cron_number(text: str, field: _CronField) -> int | None:
    if text.upper() in field.words:
        return field.first + field.words.index(text.upper())
    is_inside = text.isascii() and text.isdecimal() and field.first <= int(text) <= field.last
    return int(text) if is_inside else None


def _check_segment_interval(value: str) -> str:
    if duration_ms(value) < SEGMENT_INTERVAL_MS_MIN:
        raise ValueError("must be 1m or more: each segment is three files on every controller")
    return value


def _check_lake(value: str) -> str:
    if value == SHIPPED_DIRECTORY or value.startswith(f"{SHIPPED_DIRECTORY}/"):
        raise ValueError(f"must not be in {SHIPPED_DIRECTORY}, where the log is")
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
    """The volume for a history, which is made for it and outlives the cluster."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": "has(self.className) == has(oldSelf.className) && "
                "(!has(self.className) || self.className == oldSelf.className) && "
                "self.accessMode == oldSelf.accessMode",
                "message": "className and accessMode can't be changed: they are the volume's; name another one",
            },
            {
                "rule": "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
                "message": "size can't be made smaller: volumes only grow",
            },
        )
    )

    size: Size = Field(description="How much is asked for. It can grow, not shrink.")
    class_name: Text | None = Field(
        default=None, description="The storage class; the default one without it."
    )
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        default="ReadWriteMany",
        description="ReadWriteOnce has every controller and the ingest on one machine.",
    )


class History(Model):
    """The metadata log's history: closed segments and checkpoints are kept, and made into a lake."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": "has(self.claimName) != has(self.storage)",
                "message": "must have either storage, for a volume of its own, or claimName, for one that is there",
            },
            {
                "rule": f"self.lake != '{SHIPPED_DIRECTORY}' && !self.lake.startsWith('{SHIPPED_DIRECTORY}/')",
                "message": f"lake: must not be in {SHIPPED_DIRECTORY}, where the log is",
            },
        )
    )

    storage: HistoryStorage | None = Field(
        default=None, description="The volume that is made for it. It stays when the history is switched off."
    )
    claim_name: ResourceName | None = Field(
        default=None,
        description="A PersistentVolumeClaim that is there already, in place of storage. All controllers mount it.",
    )
    segment_interval: Annotated[Duration, AfterValidator(_check_segment_interval)] = Field(
        default="1h",
        description="How old a segment becomes before it is closed, and so shipped: metadata.log.segment.ms.",
    )
    schedule: Schedule = Field(
        default="17 * * * *",
        description="When what was shipped is taken into the lake, as in a CronJob. In UTC.",
    )
    suspend: bool = Field(default=False, description="Nothing is taken into the lake while this is true.")
    lake: LakePath = Field(default="lake", description="The lake's directory on the volume.")
    resources: Resources = Field(
        default_factory=Resources,
        description="What the ingest asks for and is limited to; 2Gi to 4Gi without it.",
    )
    image: Image | None = Field(
        default=None, description="The image that makes the lake, in place of the operator's --lake-image."
    )

    @model_validator(mode="after")
    def _has_one_volume(self) -> Self:
        if (self.storage is None) == (self.claim_name is None):
            raise ValueError(
                "must have either storage, for a volume of its own, or claimName, for one that is there"
            )
        return self
