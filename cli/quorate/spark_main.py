"""`quorate lake` as a script: `spark-submit spark_main.py ingest SOURCE… --to LAKE`."""

from quorate.lake_command import app

if __name__ == "__main__":
    app(prog_name="quorate lake")
