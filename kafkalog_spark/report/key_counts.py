"""Most frequent keys of a topic, counted in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MAX_KEYS = 100_000  # keys that are counted at once: 20 MB with keys of 100 bytes
MAX_KEY_BYTES = 32_000_000  # bytes of the keys that are counted at once: keys may have as many as a batch has


@dataclass(frozen=True, slots=True)
class KeyCount:
    """Count of a key.

    Attributes:
        key: None for records without a key.
        records: Lower bound of the number of records.
        size: Bytes of their values.
    """

    key: bytes | None
    records: int
    size: int


class KeyCounts:
    """Counts of keys in bounded memory.

    Counts are exact up to MAX_KEYS different keys of MAX_KEY_BYTES together. Beyond that they follow the algorithm of
    Misra and Gries: a count is too small by at most `missed`, and a key with more records than that is never dropped.

    Attributes:
        records: Number of records added.
        missed: Largest error of a count.
    """

    def __init__(self, max_keys: int = MAX_KEYS, max_bytes: int = MAX_KEY_BYTES) -> None:
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._bytes = 0
        self._counts: dict[bytes | None, tuple[int, int]] = {}
        self.records = 0
        self.missed = 0

    def add(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        """Add the keys and values of a batch of records."""
        sizes = pc.fill_null(pc.binary_length(values), 0)
        counted = pa.table({"key": keys, "size": sizes}).group_by("key").aggregate([([], "count_all"), ("size", "sum")])
        self.records += len(keys)
        columns = (counted[name].to_pylist() for name in ("key", "count_all", "size_sum"))
        for key, records, size in zip(*columns, strict=True):
            if key not in self._counts:
                self._bytes += len(key or b"")
            before_records, before_size = self._counts.get(key, (0, 0))
            self._counts[key] = (before_records + records, before_size + size)
        if len(self._counts) > self._max_keys or self._bytes > self._max_bytes:
            self._shrink()

    def _shrink(self) -> None:
        """Subtract the same number from all counts, so that the keys that remain fit into half of the limits."""
        ordered = sorted(((of[0], len(key or b"")) for key, of in self._counts.items()), reverse=True)
        subtracted = used_bytes = 0
        for rank, (count, length) in enumerate(ordered):
            subtracted, used_bytes = count, used_bytes + length
            if rank >= self._max_keys // 2 or used_bytes > self._max_bytes // 2:
                break
        self.missed += subtracted
        self._counts = {
            key: (count - subtracted, size - size * subtracted // count)
            for key, (count, size) in self._counts.items()
            if count > subtracted
        }
        self._bytes = sum(len(key or b"") for key in self._counts)

    def top(self, count: int) -> list[KeyCount]:
        """Return the `count` most frequent keys, most frequent first; equal counts are ordered by key."""
        rows = sorted(self._counts.items(), key=lambda item: (-item[1][0], item[0] or b""))
        return [KeyCount(key, records, size) for key, (records, size) in rows[:count]]
