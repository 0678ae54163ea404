"""Options of `readStream.format("quorate")`, read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Self

from quorate_admin.config import AdminConfig
from quorate_admin.errors import ConfigError
from quorate_protocol.properties import parse_properties

from pyspark_quorate.source.options import OptionError

_BOOTSTRAP: Final = "bootstrapControllers"
_INITIAL_OFFSET: Final = "initialOffset"
_RECORDS_MAX: Final = "maxRecordsPerTrigger"
_BYTES_MAX: Final = "maxBytesPerTrigger"
_CONFIG_FILE: Final = "configFile"
_NO_OPS: Final = "noOps"
_CONFIG_PREFIX: Final = "config."
_NAMES: Final = (_BOOTSTRAP, _INITIAL_OFFSET, _RECORDS_MAX, _BYTES_MAX, _NO_OPS, _CONFIG_FILE)
_BOOLEANS: Final = {"true": True, "false": False}
_LONG_MAX: Final = 2**63 - 1

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

    A micro-batch fails after `config.default.api.timeout.ms` (60000) without an answer from a leader. Put secrets
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
        given = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in _NAMES}
        unknown = sorted(name for name in given if name not in known and not name.startswith(_CONFIG_PREFIX))
        if unknown:
            raise OptionError(
                f"option {unknown[0]}: unknown for a stream; allowed are {', '.join(_NAMES)} and "
                f"{_CONFIG_PREFIX}PROPERTY"
            )
        config_file = given.get(_CONFIG_FILE.lower())
        parsed = cls(
            bootstrap_controllers=given.get(_BOOTSTRAP.lower(), ""),
            initial_offset=InitialOffset(
                _choice(
                    given, _INITIAL_OFFSET, [one.value for one in InitialOffset], InitialOffset.EARLIEST.value
                )
            ),
            records_max=_positive(given, _RECORDS_MAX) or _RECORDS_MAX_DEFAULT,
            bytes_max=_positive(given, _BYTES_MAX),
            no_ops=_BOOLEANS[_choice(given, _NO_OPS, list(_BOOLEANS), "false")],
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
        """The controllers, as in the column `source`: independent of which one answers, so that reads repeat."""
        return ",".join(part.strip() for part in self.bootstrap_controllers.split(",") if part.strip())

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


def _read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"option {_CONFIG_FILE}: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"option {_CONFIG_FILE}: {path}: not UTF-8 text") from error
    except ValueError as error:
        raise OptionError(f"option {_CONFIG_FILE}: {path}: {error}") from error


def _choice(given: Mapping[str, str], name: str, allowed: Sequence[str], default: str) -> str:
    value = given.get(name.lower(), default).strip().lower()
    if value not in allowed:
        raise OptionError(f"option {name}: {given[name.lower()]!r}; allowed are {' and '.join(allowed)}")
    return value


def _positive(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    text = value.strip()
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number <= _LONG_MAX:
        raise OptionError(f"option {name}: {value!r}; allowed is a whole number from 1 to {_LONG_MAX}")
    return number
