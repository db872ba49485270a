"""Kernels that write byte slices. They do not check bounds: callers compute the size of the output first."""

from __future__ import annotations

import numpy as np
from numba import types

from kafkalog_spark.kernels.encode import BYTES_IN, BYTES_OUT, INT64_IN, write_uvarint, write_varint
from kafkalog_spark.kernels.primitives import copy_bytes, kernel_for

INT64_OUT = types.Array(types.int64, 1, "C")
MASK = types.Array(types.boolean, 1, "C", readonly=True)


@kernel_for(types.void(BYTES_OUT, INT64_OUT, BYTES_IN, INT64_IN, MASK, BYTES_IN, BYTES_IN))
def append(out, positions, data, offsets, valid, prefix, null_bytes):  # type: ignore[no-untyped-def]
    """Append a fragment to each of n rows at out[positions[i]:], and advance positions[i].

    out: uint8[:]. positions: int64[n]. data, offsets: the slices, uint8[:] and int64[n + 1]. valid: bool[n], or empty
    if all rows are valid. prefix: uint8[:], written before the slice. null_bytes: uint8[:], written instead of prefix
    and slice for a row that is not valid.
    """
    for i in range(positions.size):
        to = positions[i]
        if valid.size > 0 and not valid[i]:
            copy_bytes(out, to, null_bytes, 0, null_bytes.size)
            positions[i] = to + null_bytes.size
            continue
        copy_bytes(out, to, prefix, 0, prefix.size)
        to += prefix.size
        size = offsets[i + 1] - offsets[i]
        copy_bytes(out, to, data, offsets[i], size)
        positions[i] = to + size


@kernel_for(types.int64(INT64_IN, BYTES_OUT, INT64_OUT))
def zigzag_varints(values, out, offsets):  # type: ignore[no-untyped-def]
    """Write each value as a zigzag varint of at most 10 bytes; return the number of bytes written.

    values: int64[n]. out: uint8[:], at least 10 * n. offsets: int64[n + 1], filled with the offsets of the varints.
    """
    at = 0
    for i in range(values.size):
        offsets[i] = at
        at = write_varint(out, at, values[i])
    offsets[values.size] = at
    return at


@kernel_for(types.int64(INT64_IN, BYTES_OUT, INT64_OUT))
def plain_varints(values, out, offsets):  # type: ignore[no-untyped-def]
    """Like `zigzag_varints` without the zigzag encoding: Protobuf's plain varints of 64 bits."""
    at = 0
    for i in range(values.size):
        offsets[i] = at
        at = write_uvarint(out, at, np.uint64(values[i]))
    offsets[values.size] = at
    return at
