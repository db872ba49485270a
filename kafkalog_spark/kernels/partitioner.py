"""Kafka's default partitioner (BuiltInPartitioner, Utils.murmur2) over Arrow columns."""

from __future__ import annotations

import numpy as np
from numba import types

from kafkalog_spark.kernels.encode import BINARY, BYTES_IN, INT32_IN, INT64_IN, is_valid, size_of
from kafkalog_spark.kernels.primitives import helper, kernel_for

_MULTIPLIER = np.uint64(0x5BD1E995)
_SEED = np.uint64(0x9747B28C)
_MASK = np.uint64(0xFFFFFFFF)


@helper
def murmur2(data, at, size):  # type: ignore[no-untyped-def]
    """Return the 32-bit MurmurHash2 of data[at:at + size] with Kafka's seed, as uint64."""
    h = (_SEED ^ np.uint64(size)) & _MASK
    end = at + (size & ~3)
    while at < end:
        k = (
            np.uint64(data[at])
            | (np.uint64(data[at + 1]) << np.uint64(8))
            | (np.uint64(data[at + 2]) << np.uint64(16))
            | (np.uint64(data[at + 3]) << np.uint64(24))
        )
        k = (k * _MULTIPLIER) & _MASK
        k ^= k >> np.uint64(24)
        k = (k * _MULTIPLIER) & _MASK
        h = ((h * _MULTIPLIER) & _MASK) ^ k
        at += 4
    left = size & 3
    if left == 3:
        h ^= np.uint64(data[at + 2]) << np.uint64(16)
    if left >= 2:
        h ^= np.uint64(data[at + 1]) << np.uint64(8)
    if left >= 1:
        h ^= np.uint64(data[at])
        h = (h * _MULTIPLIER) & _MASK
    h ^= h >> np.uint64(13)
    h = (h * _MULTIPLIER) & _MASK
    h ^= h >> np.uint64(15)
    return h


@kernel_for(
    types.int64(
        types.int64, BINARY, INT32_IN, BYTES_IN, types.int64,  # rows, key, partitions, their validity, its first bit
        INT32_IN, INT64_IN, INT64_IN, types.Array(types.int32, 1, "C"),  # topics, counts, first slots, slots
    )
)  # fmt: skip
def choose_slots(rows, key, partitions, valid, first_bit, topics, counts, firsts, slots):  # type: ignore[no-untyped-def]
    """Set slots[row] to firsts[topic] + partition, where the partition is the row's own one, else that of its key.

    A row that has neither gets -1.

    Args:
        rows: Number of rows.
        key: BinaryColumn.
        partitions: int32[rows]; empty if no row names a partition.
        valid: uint8[], validity bitmap of `partitions`; empty if no value is null.
        first_bit: Bit of the bitmap for row 0.
        topics: int32[rows], indices into `counts` and `firsts`; empty if every row is of topic 0.
        counts: int64[topics], number of partitions of each topic.
        firsts: int64[topics], slot of partition 0 of each topic.
        slots: int32[rows], filled.

    Returns:
        The first row that names a partition which its topic does not have, or -1.
    """
    for row in range(rows):
        topic = np.int64(topics[row]) if topics.size > 0 else np.int64(0)
        if partitions.size > 0 and is_valid(valid, first_bit, row):
            partition = np.int64(partitions[row])
            if partition < 0 or partition >= counts[topic]:
                return row
            slots[row] = np.int32(firsts[topic] + partition)
            continue
        size = size_of(key, row)
        if size < 0:
            slots[row] = np.int32(-1)
        else:
            positive = np.int64(murmur2(key.data, np.int64(key.offsets[row]), size) & np.uint64(0x7FFFFFFF))
            slots[row] = np.int32(firsts[topic] + positive % counts[topic])
    return -1
