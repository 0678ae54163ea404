"""`quorate lake` as a script: `spark-submit spark_main.py ingest SOURCE… --to LAKE`."""

from quorate.lake_command import app
from quorate.main import check_arguments

if __name__ == "__main__":
    check_arguments()
    app(prog_name="quorate lake")
