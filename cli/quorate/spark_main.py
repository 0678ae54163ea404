"""`quorate lake` as a script: `spark-submit spark_main.py ingest SOURCE… --to LAKE`."""

from quorate.command_line import prepare_text
from quorate.lake_command import app

if __name__ == "__main__":
    prepare_text()
    app(prog_name="quorate lake")
