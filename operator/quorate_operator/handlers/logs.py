"""The operator's log: one line per event on stderr, JSON for machines or text for people."""

import json
import logging
import sys
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, and perhaps a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure_logs(*, level: str, is_json: bool) -> None:
    """Log from this level on; libraries only tell what went wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter() if is_json else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("quorate_operator").setLevel(level.upper())
