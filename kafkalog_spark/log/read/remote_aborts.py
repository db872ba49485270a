"""Aborted transactions of remote segments, by their transaction indexes.

Kafka copies a segment once all of its transactions have ended, and with it the index of those whose abort marker lies
in it (RemoteLogManager.collectAbortedTransactions). So the batches need not be read twice. A marker may lie in a later
segment, and that one may be local: the producer snapshots that are copied with the segments tell which transactions
had not ended, and for these alone is read on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.log.format.transaction_index import AbortedTransaction, collect_aborted
from kafkalog_spark.log.read.partition_log import IndexedAborts, IndexedRun
from kafkalog_spark.log.read.remote_segment_file import HeldSegment, aborted_of, producers_after
from kafkalog_spark.log.read.tiered_parts import Part
from kafkalog_spark.log.tiered.key_wrap import KeyRing

_log = logging.getLogger(__name__)


Hold = Callable[[int], HeldSegment | None]
"""Gives what is known of the remote segment of a part, by its index. Raises as TieredLog.open_segment."""


def runs_of(parts: Sequence[Part], hold: Hold, start: int, end: int, keys: KeyRing, name: str) -> list[IndexedRun]:
    """[start, end) in runs of local and of remote parts; see PartitionLog.indexed_runs."""
    runs: list[IndexedRun] = []
    for is_local, group in groupby(range(len(parts)), key=lambda index: parts[index].is_local):
        indexes = list(group)
        begin, until = max(start, parts[indexes[0]].start), min(end, parts[indexes[-1]].until)
        if begin >= until:
            continue
        asked = [index for index in indexes if parts[index].until > begin]
        find = None if is_local else partial(_find, asked, hold, begin, until, keys, name)
        runs.append(IndexedRun(begin, until, find))
    return runs


def _find(indexes: Sequence[int], hold: Hold, start: int, end: int, keys: KeyRing, name: str) -> IndexedAborts | None:
    """indexes: of remote parts one after the other, from that of `start` on, also past `end`."""
    found: dict[AbortedTransaction, None] = {}  # segments that overlap tell of the same transactions
    waiting: dict[int, int] | None = None
    reached = end
    for index in indexes:
        try:
            segment = hold(index)
            assert segment is not None
            search = collect_aborted(aborted_of(segment, keys), start, end)
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            _log.warning("%s: the batches are read, as the transaction index cannot be: %s", name, error)
            return None
        found.update(dict.fromkeys(search.transactions))
        reached = segment.segment.until
        if search.complete:
            return IndexedAborts(list(found), {}, reached)
        if reached >= end:
            waiting = _open_after(segment, end, keys)
            if waiting == {}:
                break
    return None if waiting is None else IndexedAborts(list(found), waiting, reached)


def _open_after(segment: HeldSegment, end: int, keys: KeyRing) -> dict[int, int] | None:
    """Producer id -> first offset, of transactions that began before `end` and had not ended after the segment; None
    where that cannot be known."""
    try:
        producers = producers_after(segment, keys)
    except (CorruptLog, UnsupportedFormat, OSError):
        return None
    return {
        entry.producer_id: entry.transaction_first_offset
        for entry in producers
        if entry.has_open_transaction and entry.transaction_first_offset < end
    }
