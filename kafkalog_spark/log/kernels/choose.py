"""Decide over a whole header table: do offsets rise, which batches can hold wanted records, and how are they decoded.

A window of a segment holds few batches or thousands; in numpy each rule would cost a pass with a temporary of its own.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.log.kernels.primitives import kernel

RECORDS_A_BYTE = 4
"""Records that a byte of a compressed batch is believed to hold. Each has another offset delta, so even records that
are equal otherwise take about a byte each."""


class Kind(IntEnum):
    """What a batch is to its decoder."""

    PLAIN = 0  # v2 as it lies
    COMPRESSED = 1  # v2
    MESSAGE = 2  # v0, v1
    WRAPPER = 3  # v0, v1
    FROM_HEADER = 4  # v2 that need not be opened: the columns asked for are told by its header


@kernel
def first_out_of_order(table, previous, lowest, highest):  # type: ignore[no-untyped-def]
    """The first row of `table` (int64[n, len(H)]) whose offsets or record count cannot be right; n when there is none.

    Offsets rise from batch to batch, behind `previous`, and lie in [lowest, highest]. Fills in PREVIOUS in all rows.
    """
    wrong = table.shape[0]
    for i in range(table.shape[0]):
        base, last = table[i, 2], table[i, 3]
        table[i, 15] = previous
        bad_count = table[i, 13] < 0 and table[i, 4] == 2
        if wrong > i and (base <= previous or last < base or base < lowest or last > highest or bad_count):
            wrong = i
        previous = last
    return wrong


@kernel
def choose(  # type: ignore[no-untyped-def]
    table,
    hidden,
    limits,
    control_records,
    headers_only,
    uses_timestamps,
    max_records,
    chosen,
    kinds,
    starts,
    ends,
    units,
):
    """The batches of `table` that can hold wanted records; provably none is left out (docs/architecture.md, rules).

    hidden: uint8[n], 1 for batches that a read_committed reader does not see; empty when there are none. limits: see
    rows.L. control_records, uses_timestamps: 0 or 1. headers_only: 1 when no column asked for lies in records alone.
    max_records: a batch is not believed to hold more without being opened.
    Fills, for each batch kept, chosen (its row), kinds (Kind), starts and ends (of its records in the window, of a
    whole message), units (int64[n, 6], as decode_v2 takes them; of v2). Returns how many are kept.
    """
    kept = 0
    for i in range(table.shape[0]):
        at, size, base, last, magic, attributes = (
            table[i, 0], table[i, 1], table[i, 2], table[i, 3], table[i, 4], table[i, 5],
        )  # fmt: skip
        max_timestamp, count = table[i, 9], table[i, 13]
        v2 = magic == 2
        if last < limits[6] or max_timestamp < limits[8]:
            continue
        # what the cleaner leaves of a producer's last batch: a header and no record
        if count == 0 and size == 61:
            continue
        # the first offset of a wrapper is not in its header: it is opened if it can begin before the end
        if base >= limits[7] and count >= 0:
            continue
        log_append = v2 and attributes & 0x08 != 0
        if log_append and max_timestamp > limits[9]:
            continue
        if v2 and attributes & 0x20 != 0 and control_records == 0:
            continue
        if hidden.size > 0 and hidden[i] != 0:
            continue
        codec = attributes & 7
        kind = (0 if v2 else 2) + (1 if codec != 0 else 0)
        told = kind == 1 and codec <= 4 and count == last - base + 1 and (uses_timestamps == 0 or log_append)
        # What could not be unfolded within the limit is opened: that says why. And so is a batch with more records than
        # its bytes are likely to hold: to be opened costs time, to be believed could be rows that there are not.
        if headers_only != 0 and told and count <= max_records and count <= RECORDS_A_BYTE * (size - 61):
            kind = 4
        chosen[kept] = i
        kinds[kept] = kind
        starts[kept] = at + 61 if v2 else at
        ends[kept] = at + size
        units[kept, 0] = base
        units[kept, 1] = last - base
        units[kept, 2] = count
        units[kept, 3] = table[i, 8]
        units[kept, 4] = max_timestamp
        units[kept, 5] = 1 if log_append else 0
        kept += 1
    return np.int64(kept)
