"""Compressed message sets of formats v0 and v1: a wrapper opened, its messages checked (AbstractLegacyRecordBatch)."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog_broker.storage.compaction.segment_windows import BatchWindow
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.kernels.decode_legacy import inspect_message_set
from kafkalog_spark.log.kernels.primitives import CRC32_TABLE
from kafkalog_spark.log.kernels.rows import FAULTS, Status
from kafkalog_spark.log.read.decompress import MAX_DECOMPRESSED, Output, decompress
from kafkalog_spark.log.read.scratch import Scratch


class OpenedWrapper(NamedTuple):
    """Its messages lie in [0, end) of the scratch buffer. add: what makes an inner offset absolute. key: the wrapper's
    key field, length and bytes."""

    end: int
    add: int
    key: bytes


def open_wrapper(window: BatchWindow, row: int, scratch: Scratch) -> OpenedWrapper:
    """Decompress the wrapper in row `row` of a window's table. Raises CorruptBatch, UnsupportedFormat with position and
    offset."""
    header = window.table[row]
    batch = window.batch(row)
    magic, offset = int(header[H.MAGIC]), int(header[H.LAST_OFFSET])
    position = window.start + int(header[H.POSITION])
    key_at = layout.LEGACY_KEY_AT[magic]
    key_size = int.from_bytes(batch[key_at : key_at + 4], "big", signed=True)
    value_at = key_at + 8 + max(key_size, 0)
    value_size = int.from_bytes(batch[value_at - 4 : value_at], "big", signed=True)
    if value_size < 0 or value_at + value_size != len(batch):
        raise CorruptBatch(
            f"a wrapper with key size {key_size} and value size {value_size}", position=position, offset=offset
        )
    try:
        end = decompress(
            int(header[H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC, batch[value_at:], Output(scratch, 0, MAX_DECOMPRESSED)
        )
    except KafkalogError as error:
        raise error.at(position=position, offset=offset) from None
    _, last_inner, status, _ = inspect_message_set(scratch.read_only(), 0, end, magic, CRC32_TABLE)
    if status != Status.DONE:
        raise CorruptBatch(FAULTS[Status(status)], position=position, offset=offset)
    # v1: the wrapper has the last offset, the inner ones count from 0; v0: the inner ones are absolute
    add = offset - int(last_inner) if magic == 1 else 0
    return OpenedWrapper(end, add, bytes(batch[key_at : value_at - 4]))
