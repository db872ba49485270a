"""Encoder of the format `confluent-json`: a prefix before values that are encoded already."""

from __future__ import annotations

import pyarrow as pa


class FramingEncoder:
    """Encoder that puts a prefix before each value of a string or binary column, without checking the value."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment, as_values, valid_of  # loads numba

        column = columns.flatten()[0]
        return as_values([Fragment(ByteSlices.of(column))], self._prefix, valid_of(column))
