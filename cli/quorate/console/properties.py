"""Reading the files that --command-config and others name."""

from pathlib import Path

from quorate.console.failures import CommandError


def read_properties(path: Path, option: str = "--command-config") -> dict[str, str]:
    """The properties in a file that an option names. Raises CommandError naming option, file and reason."""
    from quorate_protocol.properties import parse_properties  # many runs have no such file

    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise CommandError(f"{option} {path}: it is not UTF-8 text") from error
    except OSError as error:
        raise CommandError(f"{option} {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{option} {path}: {error}") from error
