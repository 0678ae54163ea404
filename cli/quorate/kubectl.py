"""`kubectl quorate`: kubectl finds the script `kubectl-quorate` on the PATH."""

from quorate.clusters.command import app


def main() -> None:
    """The entry point of the `kubectl-quorate` script."""
    app(prog_name="kubectl quorate")


if __name__ == "__main__":
    main()
