"""Kernels that write slices. Nothing here checks bounds: callers have counted the bytes."""

from __future__ import annotations

import numpy as np
from numba import types

from kafkalog_spark.kernels.encode import BYTES_IN, BYTES_OUT, INT64_IN, write_uvarint, write_varint
from kafkalog_spark.kernels.primitives import copy_bytes, kernel_for

INT64_OUT = types.Array(types.int64, 1, "C")
MASK = types.Array(types.boolean, 1, "C", readonly=True)


@kernel_for(types.void(BYTES_OUT, INT64_OUT, BYTES_IN, INT64_IN, MASK, BYTES_IN, BYTES_IN))
def append(out, at, data, offsets, valid, before, absent):  # type: ignore[no-untyped-def]
    """Row i to out[at[i]:]: `before` and slice i, or `absent` where valid[i] is false (an empty `valid`: nowhere)."""
    for i in range(at.size):
        to = at[i]
        if valid.size > 0 and not valid[i]:
            copy_bytes(out, to, absent, 0, absent.size)
            at[i] = to + absent.size
            continue
        copy_bytes(out, to, before, 0, before.size)
        to += before.size
        size = offsets[i + 1] - offsets[i]
        copy_bytes(out, to, data, offsets[i], size)
        at[i] = to + size


@kernel_for(types.int64(INT64_IN, BYTES_OUT, INT64_OUT))
def zigzag_varints(values, out, offsets):  # type: ignore[no-untyped-def]
    """Each value as a zigzag varint, of 10 bytes at most; offsets int64[n + 1]. Gives how many bytes there are."""
    at = 0
    for i in range(values.size):
        offsets[i] = at
        at = write_varint(out, at, values[i])
    offsets[values.size] = at
    return at


@kernel_for(types.int64(INT64_IN, BYTES_OUT, INT64_OUT))
def plain_varints(values, out, offsets):  # type: ignore[no-untyped-def]
    """As zigzag_varints, of the 64 bits as they are: Protobuf's varint."""
    at = 0
    for i in range(values.size):
        offsets[i] = at
        at = write_uvarint(out, at, np.uint64(values[i]))
    offsets[values.size] = at
    return at
