"""The same commands for spark-submit: `spark-submit main.py ingest SOURCE… --to LAKE`."""

from quorate.lake_command import app

if __name__ == "__main__":
    app(prog_name="quorate lake")
