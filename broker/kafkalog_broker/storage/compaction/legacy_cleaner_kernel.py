"""Compaction kernels for messages of format v0 and v1: choose the retained messages, and copy them. Loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kafkalog_broker.storage.append.message_layouts import MessageColumn
from kafkalog_broker.storage.compaction.offset_map_kernel import latest_offset
from kafkalog_spark.format import layout
from kafkalog_spark.kernels.primitives import copy_bytes, kernel_for, write_i64

_KEY_LENGTH_AT_V0, _KEY_LENGTH_AT_V1 = layout.LEGACY_KEY_LENGTH_AT
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_INT64_2 = types.Array(types.int64, 2, "C")
_UINT64 = types.Array(types.uint64, 1, "C")
_UINT64_2 = types.Array(types.uint64, 2, "C")
_I64 = types.int64


@kernel_for(_I64(_BYTES, _INT64_2, _UINT64_2, _UINT64, _I64, _I64, _OUT))
def choose_messages(payload, messages, table, hash_seed, latest, keeps_tombstones, keep):  # type: ignore[no-untyped-def]
    """Flag in `keep` the messages of format v0 or v1 to retain, and return their number.

    Messages above `latest` are always retained. messages: see `find_messages`. keeps_tombstones: 1 to retain a
    tombstone that is the latest message of its key.
    """
    kept: Any = np.int64(0)
    for row in range(messages.shape[0]):
        offset, key_size = messages[row, MessageColumn.OFFSET], messages[row, MessageColumn.KEY_SIZE]
        stays: Any = True
        if offset <= latest:
            stays = key_size >= 0 and (messages[row, MessageColumn.VALUE_SIZE] >= 0 or keeps_tombstones != 0)
            if stays:
                stays = offset >= latest_offset(
                    table, hash_seed, payload, messages[row, MessageColumn.KEY_AT], key_size
                )
        keep[row] = np.uint8(stays)
        kept += stays
    return kept


@kernel_for(_I64(_BYTES, _INT64_2, _I64, _I64, _OUT))
def copy_messages(payload, messages, magic, base_offset, out):  # type: ignore[no-untyped-def]
    """Copy messages of format `magic` to `out`, with offsets relative to `base_offset`, and return their size.

    `out` must have room for them. Offsets are not part of a message's CRC.
    """
    before_key = np.int64(_KEY_LENGTH_AT_V1 if magic == 1 else _KEY_LENGTH_AT_V0) + 4
    at: Any = np.int64(0)
    for row in range(messages.shape[0]):
        start = messages[row, MessageColumn.KEY_AT] - before_key
        size = messages[row, MessageColumn.END] - start
        copy_bytes(out, at, payload, start, size)
        write_i64(out, at, messages[row, MessageColumn.OFFSET] - base_offset)
        at += size
    return at
