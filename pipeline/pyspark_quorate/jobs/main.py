"""The same commands for spark-submit: `spark-submit main.py ingest SOURCE… --to LAKE`."""

from pyspark_quorate.jobs.commands import app

if __name__ == "__main__":
    app(prog_name="quorate lake")
