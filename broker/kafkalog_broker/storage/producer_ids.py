"""Allocation of producer IDs from blocks that are on disk before their first ID is used.

Kafka's brokers get blocks of 1,000 IDs from the controller (KIP-730). This broker stores the end of its last block in
the file `kafkalog.producer-ids` of every log directory: a version line, then the first ID after the block. IDs of the
block that are unused at a restart are skipped, so no ID is allocated twice.

If the file is missing, the IDs that other brokers allocated are read from Kafka's metadata log and from producer
snapshots. Snapshots may contain IDs that clients invented, so IDs that no cluster can have allocated are ignored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.cluster_producer_ids import BLOCK, next_cluster_producer_id
from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_broker.storage.housekeeping import RunBlocking
from kafkalog_spark.errors import CorruptFile, CorruptLog, UnsupportedFormat
from kafkalog_spark.format.atomic_file import replace_files
from kafkalog_spark.format.names import PRODUCER_SNAPSHOT_SUFFIX
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.format.regular_file import read_state

_logger = logging.getLogger(__name__)

FILE = "kafkalog.producer-ids"
_VERSION = "0"

MAX_CLUSTER_ID = 2**52
"""Upper bound of IDs that a cluster can have allocated: at a million per second it is reached after 140 years. Higher
IDs were invented by clients. Starting above them could leave no ID to allocate."""
ID_GAP = 4_000_000 * BLOCK
"""Gap between the IDs of the Kafka broker that used this directory before and those allocated here. If that broker uses
the directory again, it continues at its own next block, and must not reach the IDs allocated here."""
_MAX_OWN_ID = 2 * MAX_CLUSTER_ID
"""Upper bound of IDs that this broker can reach, because its first ID is at most slightly above MAX_CLUSTER_ID."""


def largest_cluster_id(ids: npt.ArrayLike) -> int:
    """Return the largest of these producer IDs that a cluster may have allocated; -1 if there is none."""
    producer_ids = np.asarray(ids, np.int64)
    return int(producer_ids[producer_ids < MAX_CLUSTER_ID].max(initial=-1))


class ProducerIds:
    """Allocates producer IDs.

    If the files of several log directories differ, the largest number is used. Without any file, IDs begin above those
    that a Kafka broker may have allocated. A damaged file is treated as missing, but IDs then begin at ID_GAP or above,
    because some IDs may have been allocated that no log contains. Call `next` and `is_empty` from one thread.

    Attributes:
        had_file: False if no log directory had the file. Records of `__transaction_state` may then contain higher IDs;
            call `stay_above` with them.
    """

    def __init__(self, directories: Iterable[Path], run_blocking: RunBlocking = lambda function: function()) -> None:
        """Read the files.

        Args:
            directories: The online log directories.
            run_blocking: Runs the allocation of the next block, ahead of its use.

        Raises:
            OSError: If the process is out of file descriptors, so that IDs in use cannot be found. An ID that is
                allocated twice would make one producer's batches duplicates of another's.
        """
        directories = list(directories)
        self._paths = [directory / FILE for directory in directories]
        self._run_blocking = run_blocking
        known: list[int] = []
        least = 0
        for path in self._paths:
            try:
                end = _read(path)
            except CorruptFile as error:
                _logger.warning("%s; producer IDs begin above those in the logs, unless another copy is good", error)
                least = ID_GAP
            else:
                if end is not None:
                    known.append(end)
        self.had_file = bool(known)
        self._next = self._end = max(known) if known else max(_above_those_in_use(directories), least)
        self._fetching = threading.Lock()
        self._is_fetch_scheduled = False

    @property
    def is_empty(self) -> bool:
        """True if `fetch` must allocate a block before `next` can return an ID."""
        return self._next >= self._end

    def next(self) -> int:
        """Return a producer ID that was never allocated before. Raises OSError if the next block is not on disk yet."""
        if self._is_low and not self._is_fetch_scheduled:
            self._is_fetch_scheduled = True
            self._run_blocking(self.fetch)
        if self.is_empty:
            raise OSError("the next block of producer ids is not on disk yet")
        self._next += 1
        return self._next - 1

    def may_allocate(self, producer_id: int) -> bool:
        """Return whether `next` might return this ID later."""
        return self._next <= producer_id < MAX_CLUSTER_ID

    def stay_above(self, producer_id: int) -> None:
        """Continue above the block of an ID that another broker has allocated. The new block is synced to disk.

        Blocks; any thread, while `next` is not called.

        Raises:
            OSError: If no log directory can be written.
        """
        with self._fetching:
            if self.may_allocate(producer_id):
                end = (producer_id // BLOCK + 2) * BLOCK
                replace_files(self._paths, f"{_VERSION}\n{end}\n".encode("ascii"))
                self._next = self._end = end

    def fetch(self) -> None:
        """Allocate the next block on disk if IDs run low.

        Blocks; any thread. Raises OSError if no directory can be written.
        """
        with self._fetching:
            try:
                if self._is_low:
                    end = self._end + BLOCK
                    replace_files(self._paths, f"{_VERSION}\n{end}\n".encode("ascii"))
                    self._end = end
            finally:
                self._is_fetch_scheduled = False

    @property
    def _is_low(self) -> bool:
        return self._end - self._next <= BLOCK // 2


def _above_those_in_use(directories: Sequence[Path]) -> int:
    """Return the first ID that is safe to allocate in directories of a Kafka broker; 0 if no ID was allocated.

    The result is ID_GAP above the first free block in Kafka's metadata log and above the block after the largest ID in
    the snapshots of all partitions; batches after a snapshot may have IDs of that block. An unreadable snapshot counts
    as one with ID 0. Raises OSError if the process is out of file descriptors.
    """
    free = max(map(next_cluster_producer_id, directories), default=0)
    largest = -1
    for path in (path for directory in directories for path in directory.glob("*/*" + PRODUCER_SNAPSHOT_SUFFIX)):
        try:
            largest = max(largest, largest_cluster_id([entry.producer_id for entry in read_producer_snapshot(path)]))
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            if is_transient(error):
                raise
            _logger.warning("a producer snapshot cannot be read, producer IDs in it are unknown: %s", error)
            largest = max(largest, 0)
    above = free if largest < free else (largest // BLOCK + 2) * BLOCK
    return above and above + ID_GAP


def _read(path: Path) -> int | None:
    text = read_state(path, lambda data: data.decode("ascii", "replace"))
    if text is None:
        return None
    lines = text.split("\n")
    if len(lines) != 3 or lines[0] != _VERSION or not lines[1].isdigit():
        raise CorruptFile(
            f"expected a line with version {_VERSION} and one with a producer ID, found {text[:40]!r}", path=str(path)
        )
    if len(lines[1]) > len(str(_MAX_OWN_ID)) or int(lines[1]) > _MAX_OWN_ID:
        _logger.warning(
            "%s contains %s, which is larger than any allocated producer ID: a client invented it. The file is "
            "ignored, and producer IDs begin above those in the logs",
            path,
            lines[1][:40],
        )
        return None
    return int(lines[1])
