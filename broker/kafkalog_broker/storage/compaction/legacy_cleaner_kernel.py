"""Compaction of messages in formats v0 and v1: which ones survive, and a message set of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkalog_broker.storage.append.message_layouts import MessageColumn
from kafkalog_broker.storage.compaction.cleaner_kernel import (
    _BYTES,
    _I64,
    _INT64_2,
    _KEY_AT_V0,
    _KEY_AT_V1,
    _OUT,
    _UINT64,
    _UINT64_2,
)
from kafkalog_broker.storage.compaction.offset_map_kernel import latest_offset
from kafkalog_spark.kernels.primitives import (
    copy_bytes,
    kernel_for,
    write_i64,
)


@kernel_for(_I64(_BYTES, _INT64_2, _UINT64_2, _UINT64, _I64, _I64, _OUT))
def choose_messages(payload, messages, table, secret, latest, keeps_tombstones, keep):  # type: ignore[no-untyped-def]
    """Flag in `keep` which messages v0 or v1 (see find_messages) stay, as those above `latest` do; returns how many.
    keeps_tombstones: 1 when a tombstone that is its key's latest does."""
    kept: Any = np.int64(0)
    for row in range(messages.shape[0]):
        offset, key_size = messages[row, MessageColumn.OFFSET], messages[row, MessageColumn.KEY_SIZE]
        stays: Any = True
        if offset <= latest:
            stays = key_size >= 0 and (messages[row, MessageColumn.VALUE_SIZE] >= 0 or keeps_tombstones != 0)
            if stays:
                stays = offset >= latest_offset(table, secret, payload, messages[row, MessageColumn.KEY_AT], key_size)
        keep[row] = np.uint8(stays)
        kept += stays
    return kept


@kernel_for(_I64(_BYTES, _INT64_2, _I64, _I64, _OUT))
def copy_messages(payload, messages, magic, base_offset, out):  # type: ignore[no-untyped-def]
    """Copy messages of format `magic` to `out`, which has room, with offsets that count from `base_offset`: they lie
    outside a message's CRC. Returns the bytes written."""
    before_key = np.int64(_KEY_AT_V1 if magic == 1 else _KEY_AT_V0) + 4
    at: Any = np.int64(0)
    for row in range(messages.shape[0]):
        start = messages[row, MessageColumn.KEY_AT] - before_key
        size = messages[row, MessageColumn.END] - start
        copy_bytes(out, at, payload, start, size)
        write_i64(out, at, messages[row, MessageColumn.OFFSET] - base_offset)
        at += size
    return at
