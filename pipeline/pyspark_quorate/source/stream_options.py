"""Options of `readStream.format("quorate")`, read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Self

from quorate_admin.config import AdminConfig
from quorate_admin.errors import ConfigError
from quorate_protocol.files import PROPERTIES_SIZE_BYTES_MAX, read_bounded
from quorate_protocol.properties import parse_properties

from pyspark_quorate.source.options import OptionError, choice, flag, lowered, number, require_known

_BOOTSTRAP: Final = "bootstrapControllers"
_INITIAL_OFFSET: Final = "initialOffset"
_RECORDS_MAX: Final = "maxRecordsPerTrigger"
_BYTES_MAX: Final = "maxBytesPerTrigger"
_CONFIG_FILE: Final = "configFile"
_NO_OPS: Final = "noOps"
_CONFIG_PREFIX: Final = "config."
_NAMES: Final = (_BOOTSTRAP, _INITIAL_OFFSET, _RECORDS_MAX, _BYTES_MAX, _NO_OPS, _CONFIG_FILE)

_CLIENT_ID: Final = "quorate-lake"
_RECORDS_MAX_DEFAULT: Final = 1_000_000


class InitialOffset(Enum):
    """Where a stream without a checkpoint begins."""

    EARLIEST = "earliest"
    """At offset 0, or with the leader's snapshot if its log starts later."""
    LATEST = "latest"
    """At the high watermark: records committed before are skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a stream.

    | option | meaning |
    |---|---|
    | `bootstrapControllers` | `host:port,host:port` of controllers; the others are discovered |
    | `initialOffset` | `earliest` (default) or `latest`; ignored if there is a checkpoint |
    | `maxRecordsPerTrigger` | maximum records per micro-batch, in whole batches, at least one; default 1000000 |
    | `maxBytesPerTrigger` | the same by bytes of keys and values; default: no limit |
    | `noOps` | `true`: include NoOpRecords; default `false` |
    | `configFile` | Kafka client properties; the file is read on the driver and on each executor |
    | `config.PROPERTY` | one property, such as `config.security.protocol`; overrides the file |

    A micro-batch fails after `config.default.api.timeout.ms` (60000) without a response from a leader. Put secrets
    into `configFile`: Spark may show options.
    """

    bootstrap_controllers: str
    initial_offset: InitialOffset = InitialOffset.EARLIEST
    records_max: int = _RECORDS_MAX_DEFAULT
    bytes_max: int | None = None
    no_ops: bool = False
    config_file: Path | None = None
    config: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse the arguments of `.option()`; names are case-insensitive. Raises OptionError."""
        given = lowered(options)
        require_known(given, _NAMES, _CONFIG_PREFIX)
        config_file = given.get(_CONFIG_FILE.lower())
        parsed = cls(
            bootstrap_controllers=given.get(_BOOTSTRAP.lower(), ""),
            initial_offset=InitialOffset(
                choice(given, _INITIAL_OFFSET, [offset.value for offset in InitialOffset])
            ),
            records_max=number(given, _RECORDS_MAX, at_least=1) or _RECORDS_MAX_DEFAULT,
            bytes_max=number(given, _BYTES_MAX, at_least=1),
            no_ops=flag(given, _NO_OPS),
            config_file=None if config_file is None else Path(config_file),
            config={
                name.removeprefix(_CONFIG_PREFIX): value
                for name, value in given.items()
                if name.startswith(_CONFIG_PREFIX)
            },
        )
        parsed.admin_config()
        return parsed

    @property
    def source(self) -> str:
        """The controllers, as in the column `source`."""
        return source_of(self.bootstrap_controllers)

    def admin_config(self) -> AdminConfig:
        """The client configuration, from the current content of the file. Raises OptionError."""
        properties = {"client.id": _CLIENT_ID}
        if self.config_file is not None:
            properties |= _read_properties(self.config_file)
        properties |= self.config
        if not self.source:
            raise OptionError(
                f"option {_BOOTSTRAP}: {self.bootstrap_controllers!r}; allowed are addresses of "
                "controllers, as host:port,host:port"
            )
        try:
            return AdminConfig.from_properties(properties, bootstrap_controllers=self.source)
        except ConfigError as error:
            raise OptionError(str(error)) from None


def source_of(bootstrap_controllers: str) -> str:
    """The value of the column `source`: independent of which controller answers, so that reads repeat."""
    return ",".join(part.strip() for part in bootstrap_controllers.split(",") if part.strip())


def _read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(read_bounded(path, PROPERTIES_SIZE_BYTES_MAX).decode())
    except (OSError, ValueError) as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        reason = (getattr(error, "strerror", None) or error) if is_text else "not UTF-8 text"
        raise OptionError(f"option {_CONFIG_FILE}: {path}: {reason}") from error
