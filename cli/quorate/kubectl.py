"""The entry point of `kubectl quorate`: kubectl runs the script `kubectl-quorate` that it finds on the PATH."""

from quorate.clusters.command import app
from quorate.main import check_arguments


def main() -> None:
    """The entry point of the `kubectl-quorate` script."""
    check_arguments()
    app(prog_name="kubectl quorate")


if __name__ == "__main__":
    main()
