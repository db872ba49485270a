"""Producer ids for idempotent producers: given out from blocks that are on disk before their first id is used.

Kafka's brokers get blocks of 1,000 from the controller (KIP-730). Here the end of the block taken last is in the file
`kafkalog.producer-ids` of every log directory: `version` line, then the first id that no block holds. After a restart
the rest of what was fetched is left unused: ids are never given twice.

Where others gave ids out before, Kafka's metadata log says how far they came, and the ids in batches say it roughly: a
client may have invented one, so that those above all that a cluster can have given out do not count.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.cluster_producer_ids import BLOCK, next_of_cluster
from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_broker.storage.housekeeping import RunBlocking
from kafkalog_spark.errors import CorruptFile, CorruptLog, UnsupportedFormat
from kafkalog_spark.format.atomic_file import read_state, replace_files
from kafkalog_spark.format.names import PRODUCER_SNAPSHOT_SUFFIX
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot

_logger = logging.getLogger(__name__)

FILE = "kafkalog.producer-ids"
_VERSION = "0"

GIVEN_OUT = 2**52
"""All ids that clusters have given out are below: at a million a second it takes 140 years. A client invented what lies
above, where there may be no id left to give out."""
LEAP = 4_000_000 * BLOCK
"""Ids between those of a Kafka whose directory this was and ours: when that Kafka gets its directory back, it counts on
from where it was, and must not give out what was given out here. It counts a block at each of its starts."""
_COUNTED = 2 * GIVEN_OUT  # this broker, which begins not far above GIVEN_OUT at most, does not come to it either


def largest_given(ids: npt.ArrayLike) -> int:
    """The largest of the producer ids of batches that a cluster may have given out; -1 without any."""
    some = np.asarray(ids, np.int64)
    return int(some[some < GIVEN_OUT].max(initial=-1))


class ProducerIds:
    """The largest number found in the log directories counts. Without any file ids begin above those that a real Kafka
    may have given out: see `were_known`. A damaged file counts as none, but ids begin at LEAP at least: some may have
    been given out that no log holds. run_blocking: where blocks are fetched, ahead of their use. `next` and `is_empty`
    are for one thread. Raises OSError where descriptors are lacking to read which ids are in use: an id that is given
    twice makes a producer's batches duplicates of another's."""

    def __init__(self, directories: Iterable[Path], run_blocking: RunBlocking = lambda function: function()) -> None:
        directories = list(directories)
        self._paths = [directory / FILE for directory in directories]
        self._run_blocking = run_blocking
        known: list[int] = []
        least = 0
        for path in self._paths:
            try:
                end = _read(path)
            except CorruptFile as error:
                _logger.warning("%s; ids begin above those that are in the logs, unless another file is whole", error)
                least = LEAP
            else:
                if end is not None:
                    known.append(end)
        self.were_known = bool(known)
        """False: there was no file, and the records of `__transaction_state` may know of more ids: `stay_above`."""
        self._next = self._end = max(known) if known else max(_above_those_in_use(directories), least)
        self._fetching = threading.Lock()
        self._is_asked_for = False

    @property
    def is_empty(self) -> bool:
        """A block has to be fetched before there is a next id."""
        return self._next >= self._end

    def next(self) -> int:
        """A producer id never given out before. Raises OSError while there is none: after `fetch` there is."""
        if self._is_low and not self._is_asked_for:
            self._is_asked_for = True
            self._run_blocking(self.fetch)
        if self.is_empty:
            raise OSError("the next block of producer ids is not on disk yet")
        self._next += 1
        return self._next - 1

    def may_give(self, producer_id: int) -> bool:
        """True when `next` might give out this id, or did."""
        return self._next <= producer_id < GIVEN_OUT

    def stay_above(self, producer_id: int) -> None:
        """Somebody else has given out this id, and may give out others of its block: none of them is given out here.
        On disk on return. Blocks; any thread, while nobody calls `next`. Raises OSError."""
        with self._fetching:
            if self.may_give(producer_id):
                end = (producer_id // BLOCK + 2) * BLOCK
                replace_files(self._paths, f"{_VERSION}\n{end}\n".encode("ascii"))
                self._next = self._end = end

    def fetch(self) -> None:
        """Put the next block on disk when ids run low. Blocks; any thread. Raises OSError (no directory took it)."""
        with self._fetching:
            try:
                if self._is_low:
                    end = self._end + BLOCK
                    replace_files(self._paths, f"{_VERSION}\n{end}\n".encode("ascii"))
                    self._end = end
            finally:
                self._is_asked_for = False

    @property
    def _is_low(self) -> bool:
        return self._end - self._next <= BLOCK // 2


def _above_those_in_use(directories: Sequence[Path]) -> int:
    """0 where nobody gave out ids. Otherwise LEAP ids above the block that Kafka's metadata log, where it is here, says
    is free, and above the producers in the snapshots of all partitions: what was appended after a log's last snapshot
    may be of the block after the one seen there. An unreadable snapshot shows that ids are in use, though not
    which. Raises OSError for a lack of descriptors."""
    free, largest = max(map(next_of_cluster, directories), default=0), -1
    for path in (path for directory in directories for path in directory.glob("*/*" + PRODUCER_SNAPSHOT_SUFFIX)):
        try:
            largest = max(largest, largest_given([entry.producer_id for entry in read_producer_snapshot(path)]))
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            if is_transient(error):
                raise
            _logger.warning("a producer snapshot cannot be read, ids in it are not known: %s", error)
            largest = max(largest, 0)
    above = free if largest < free else (largest // BLOCK + 2) * BLOCK
    return above and above + LEAP


def _read(path: Path) -> int | None:
    text = read_state(path, lambda data: data.decode("ascii", "replace"))
    if text is None:
        return None
    lines = text.split("\n")
    if len(lines) != 3 or lines[0] != _VERSION or not lines[1].isdigit():
        raise CorruptFile(
            f"expected a line with version {_VERSION} and one with a producer id, found {text[:40]!r}", path=str(path)
        )
    if len(lines[1]) > len(str(_COUNTED)) or int(lines[1]) > _COUNTED:
        _logger.warning(
            "%s says %s, which cannot be reached by counting: an id that a client invented was believed. It is left "
            "out, and ids begin above those that are in the logs",
            path,
            lines[1][:40],
        )
        return None
    return int(lines[1])
