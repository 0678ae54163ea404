"""The entry point of `kubectl quorate`: kubectl runs the script `kubectl-quorate` that it finds on the PATH."""

from quorate.clusters.command import app
from quorate.command_line import prepare_text


def main() -> None:
    """The entry point of the `kubectl-quorate` script."""
    prepare_text()
    app(prog_name="kubectl quorate")


if __name__ == "__main__":
    main()
