"""Logging of the broker's commands: one escaped line per record on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Any

from kafkalog_spark.errors import escaped


class LineFormatter(logging.Formatter):
    """Formatter that escapes control characters in messages and tracebacks.

    Names in messages come from clients, topics and directories, and may contain line breaks and escape sequences.
    """

    def __init__(self) -> None:
        # The logger's name comes last, as in Kafka's log4j2.yaml.
        super().__init__("%(asctime)s %(levelname)s %(message)s (%(name)s)")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(escaped, super().formatException(ei).split("\n")))


def set_up_logging(level: str) -> None:
    """Configure the root logger. Messages of asyncio below WARNING are logged at level debug only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        logging.getLogger("asyncio").setLevel(logging.WARNING)
