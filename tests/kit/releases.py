"""The release of stock Kafka that a test run has beside our controllers; QUORATE_KAFKA_VERSION chooses another."""

import os
from typing import Final

from quorate_operator.runtime.local.stock_kafka import BORROWED_SHELL
from quorate_protocol.kafka.releases import DEFAULT_RELEASE, release_line
from quorate_protocol.kafka.releases import RELEASES as _ROWS

RELEASES: Final = tuple(_ROWS)
"""The supported releases, oldest first."""
RELEASE: Final = os.environ.get("QUORATE_KAFKA_VERSION", DEFAULT_RELEASE)
if RELEASE not in RELEASES:
    raise ValueError(f"QUORATE_KAFKA_VERSION is {RELEASE}: must be one of {', '.join(RELEASES)}")
LEVEL: Final = release_line(RELEASE)
"""Its metadata.version, as `--release-version` and manifests take it: `4.4`."""
SHELL_LEVEL: Final = release_line(BORROWED_SHELL.get(RELEASE, RELEASE))
"""The metadata.version of the stock metadata shell beside it, which can't read the records of a later one."""
IS_NEWEST: Final = RELEASES[-1] == RELEASE
"""Whether the stock tools of this test run have all that ours have."""
NEWEST_LEVEL: Final = _ROWS[RELEASE].metadata_version
"""The highest metadata.version that its nodes support: 33."""
