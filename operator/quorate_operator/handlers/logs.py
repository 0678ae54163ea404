"""The operator's log: one line per event on stderr, JSON for programs or text for people."""

import json
import logging
import sys
from datetime import UTC, datetime

from quorate_protocol.printable import PrintableFormatter, printable

KOPF_LOGGER = "kopf.objects"
TEMPORARY = " failed temporarily: "
"""The message that kopf logs for a handler that is to be called again."""


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return printable(json.dumps(fields, ensure_ascii=False))


class TemporaryIsNoError(logging.Filter):
    """Logs kopf's temporary failures at level INFO: kopf reports each handler that waits as an error."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged; may change its level."""
        if TEMPORARY in record.msg and record.levelno == logging.ERROR:
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            return logging.getLogger("quorate_operator").isEnabledFor(logging.INFO)
        return True


def configure_logs(*, level: str, is_json: bool) -> None:
    """Log from this level on. Libraries log only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter() if is_json else PrintableFormatter("%(asctime)s %(levelname)-7s %(name)s %(message)s")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("quorate_operator").setLevel(level.upper())
    logging.getLogger(KOPF_LOGGER).addFilter(TemporaryIsNoError())
