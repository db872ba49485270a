"""Producer ids for idempotent producers: given out from a block that is on disk before its first id is used.

Kafka's brokers get blocks of 1,000 from the controller (KIP-730). Here the end of the block taken last is in the file
`kafkalog.producer-ids` of every log directory: `version` line, then the first id that no block holds. After a restart
the rest of a block is left unused: ids are never given twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.log.durable import replace_file

FILE = "kafkalog.producer-ids"
BLOCK = 1000
_VERSION = "0"


class ProducerIds:
    """directories: where the file is kept; the largest number found counts. at_least: an id above all that the logs
    know, for directories that a real Kafka wrote.

    Raises CorruptFile, OSError (the block could not be stored in any directory).
    """

    def __init__(self, directories: Iterable[Path], at_least: int = 0) -> None:
        self._paths = [directory / FILE for directory in directories]
        self._next = self._end = max([at_least, *map(_read, self._paths)])

    def next(self) -> int:
        """A producer id that nobody had before."""
        if self._next == self._end:
            end = self._end + BLOCK
            self._store(end)
            self._end = end
        self._next += 1
        return self._next - 1

    def _store(self, end: int) -> None:
        failures = []
        for path in self._paths:
            try:
                replace_file(path, f"{_VERSION}\n{end}\n".encode("ascii"))
            except OSError as error:
                failures.append(error)
        if len(failures) == len(self._paths):
            raise failures[0]


def _read(path: Path) -> int:
    try:
        text = path.read_text("ascii", "replace")
    except FileNotFoundError:
        return 0
    lines = text.split("\n")
    if len(lines) != 3 or lines[0] != _VERSION or not lines[1].isdigit():
        raise CorruptFile(
            f"expected a line with version {_VERSION} and one with a producer id, found {text[:40]!r}", path=str(path)
        )
    return int(lines[1])
