"""Makes untrusted text safe for log lines: no character in it ends a line or controls a terminal."""

import json
import logging


def printable(text: str) -> str:
    """Return a text without characters that end a line or that a terminal obeys, such as U+0085 and U+009B.

    They are written as JSON writes them, so that JSON stays the same JSON.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


class PrintableFormatter(logging.Formatter):
    """Each event is one line of printable characters; an exception follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        return "\n".join(map(printable, lines))
