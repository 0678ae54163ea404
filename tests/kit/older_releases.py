"""The differences between our controllers, which answer like the newest release, and an older release."""

import re
from typing import Final

from quorate_protocol.kafka.config_schema import (
    broker_definitions,
    group_definitions,
    topic_definitions,
)
from quorate_protocol.kafka.releases import NEWEST_RELEASE, RELEASES

_DEFINITIONS: Final = {**broker_definitions(), **topic_definitions(), **group_definitions()}
_BOUNDS: Final = re.compile(r"must be (in the range|greater|less) .*")
_LEVELS: Final = re.compile(r"(Local controller 3000|Broker \d+) only supports versions [\d-]+")
"""An older controller supports fewer levels itself; ours looks at the brokers next."""


def is_later(name: str, release: str) -> bool:
    """Whether a release that is newer than this one introduced the config."""
    definition = _DEFINITIONS.get(name)
    order = list(RELEASES)
    return definition is not None and definition.since in order[order.index(release) + 1 :]


def reworded(message: str, release: str) -> str:
    """A message without the parts that an older release words differently."""
    if release == NEWEST_RELEASE:
        return message
    return _LEVELS.sub("<node> only supports fewer", _BOUNDS.sub("is out of bounds", message))
