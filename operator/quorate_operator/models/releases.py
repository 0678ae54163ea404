"""The releases of Apache Kafka that a manifest may name."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field
from quorate_protocol.kafka.releases import RELEASES, release_line

from quorate_operator.models.base import KafkaVersion, rules

_LINES: Final = tuple(dict.fromkeys(map(release_line, RELEASES)))

SUPPORTED_RULE: Final = f"must be one of the supported releases {', '.join(RELEASES)}"
LINES_RULE: Final = f"{SUPPORTED_RULE}, or another of {', '.join(_LINES)} with image"
IMAGE_RULE: Final = {
    "rule": f"has(self.image) || self.version in {list(RELEASES)}",
    "message": f"version: {LINES_RULE}",
}
"""A release that this operator does not know yet, such as a fix, needs an image that has it."""


def check_release_of_image(version: str, image: str | None) -> None:
    """Raise ValueError if nodes without an image of their own have a release that there may be no image of."""
    if image is None and version not in RELEASES:
        raise ValueError(f"version: {version!r}: {LINES_RULE}")


def _check_release(version: str) -> str:
    if version not in RELEASES:
        raise ValueError(SUPPORTED_RULE)
    return version


def _check_line(version: str) -> str:
    if release_line(version) not in _LINES:
        raise ValueError(LINES_RULE)
    return version


SupportedRelease = Annotated[
    KafkaVersion,
    AfterValidator(_check_release),
    Field(json_schema_extra=rules({"rule": f"self in {list(RELEASES)}", "message": SUPPORTED_RULE})),
]
ReleaseOfLine = Annotated[
    KafkaVersion,
    AfterValidator(_check_line),
    Field(
        json_schema_extra=rules(
            {
                "rule": f"{list(_LINES)}.exists(line, self.startsWith(line + '.'))",
                "message": LINES_RULE,
            }
        )
    ),
]
"""A release of which only the line is known to be supported."""
