"""Encoders."""

from __future__ import annotations

import pyarrow as pa


class FramingEncoder:
    """Puts a prefix before each text, which is not looked into."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment, as_values, valid_of

        column = columns.flatten()[0]
        return as_values([Fragment(ByteSlices.of(column))], self._prefix, valid_of(column))
