"""Config providers (KIP-297, KIP-421): values of a configuration in other files, `${provider:path:key}`.

Kafka's providers of files are supported: DirectoryConfigProvider, which reads the file `key` of the directory `path`,
as a Kubernetes Secret is mounted, and FileConfigProvider, which reads the property `key` of the file `path`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from quorate_protocol.files import read_bounded
from quorate_protocol.kafka.config_names import CONFIG_PROVIDERS, PROVIDER_PREFIX
from quorate_protocol.properties import parse_properties

from quorate_controller.config.endpoints import Problems

ALLOWED_PATHS: Final = "allowed.paths"

_PACKAGE: Final = "org.apache.kafka.common.config.provider"
_SIZE_BYTES_MAX: Final = 1024 * 1024
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
"""As ConfigTransformer has it: neither provider nor path may have a colon."""


class _ProviderError(ValueError):
    """A variable can't be resolved. The message has no value."""


def _of_directory(path: Path, key: str) -> str:
    if key != Path(key).name:
        raise _ProviderError(f"{key!r} is not the name of a file in {path}")
    return _text(path / key)


def _of_file(path: Path, key: str) -> str:
    try:
        found = parse_properties(_text(path)).get(key)
    except ValueError as error:
        raise _ProviderError(f"{path}: {error}") from None
    if found is None:
        raise _ProviderError(f"{path} has no property {key!r}")
    return found


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _SIZE_BYTES_MAX).decode()
    except OSError as error:
        raise _ProviderError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise _ProviderError(f"{path}: it is not UTF-8 text of up to {_SIZE_BYTES_MAX} bytes") from None


_READERS: Final[Mapping[str, Callable[[Path, str], str]]] = {
    f"{_PACKAGE}.DirectoryConfigProvider": _of_directory,
    f"{_PACKAGE}.FileConfigProvider": _of_file,
}


def provider_names(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The providers that a configuration names."""
    return tuple(part.strip() for part in properties.get(CONFIG_PROVIDERS, "").split(",") if part.strip())


def check_providers(properties: Mapping[str, str], problem: Problems) -> None:
    """Report providers of other classes than Kafka's for files, and unknown parameters."""
    names = provider_names(properties)
    for name in names:
        key = f"{PROVIDER_PREFIX}{name}.class"
        if properties.get(key, "").strip() not in _READERS:
            given = f" and {key}={properties[key]}" if key in properties else ""
            problem(f"{CONFIG_PROVIDERS}={','.join(names)}{given}: {key} must be {' or '.join(_READERS)}")
    known = {
        f"{PROVIDER_PREFIX}{name}.{end}" for name in names for end in ("class", f"param.{ALLOWED_PATHS}")
    }
    for key in properties:
        if key.startswith(PROVIDER_PREFIX) and key not in known:
            problem(
                f"{key}: is for no provider in {CONFIG_PROVIDERS}; allowed are {', '.join(sorted(known)) or 'none'}"
            )


def resolved(properties: Mapping[str, str], problem: Problems) -> dict[str, str]:
    """The properties with the content of files in place of variables.

    A variable of an unknown provider stays as it is, as in Kafka; an unreadable variable is reported.
    """
    readers = {
        name: _READERS[text]
        for name in provider_names(properties)
        if (text := properties.get(f"{PROVIDER_PREFIX}{name}.class", "").strip()) in _READERS
    }
    if not readers:
        return dict(properties)

    def content(key: str, match: re.Match[str]) -> str:
        name, path, wanted = match[1], match[2] or "", match[3]
        if name not in readers:
            return match[0]
        try:
            return readers[name](_allowed(properties, name, Path(path)), wanted)
        except _ProviderError as error:
            problem(f"{key}={match[0]}: {error}")
            return ""

    return {
        key: value
        if key.startswith(CONFIG_PROVIDERS)
        else _VARIABLE.sub(lambda match, key=key: content(key, match), value)  # type: ignore[misc]
        for key, value in properties.items()
    }


def _allowed(properties: Mapping[str, str], name: str, path: Path) -> Path:
    key = f"{PROVIDER_PREFIX}{name}.param.{ALLOWED_PATHS}"
    listed = [part.strip() for part in properties.get(key, "").split(",") if part.strip()]
    real = path.resolve()
    if listed and not any(real.is_relative_to(Path(part).resolve()) for part in listed):
        raise _ProviderError(f"{path} is not in {key}={','.join(listed)}")
    return path
