"""Interfaces of decoders, from binary Arrow arrays to Arrow columns, and of encoders, from columns to binary arrays.

They and the formats depend neither on Spark nor on Kafka logs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa


class Decoded(NamedTuple):
    """Decoded values of one batch.

    Attributes:
        columns: One row per value, with the decoder's schema. A row is null if its value is null.
        bad: bool[n], true for each malformed value; None if all values are well-formed. The row of a malformed value
            contains the fields that could be decoded, or only nulls.
        why: Function that returns why value i, which must be malformed, is so: one line that does not repeat the value.
    """

    columns: pa.StructArray
    bad: np.ndarray | None
    why: Callable[[int], str]


class ValueDecoder(Protocol):
    """Decoder of one format. `schema` lists the columns of its results: those of the projection."""

    schema: pa.Schema

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        """Decode a batch of values. Malformed values are reported per row and never raise an exception."""


def decode_column(decoder: ValueDecoder, rows: pa.RecordBatch, side: str) -> Decoded:
    """Decode the column `value` or `key` of a batch of records.

    A decoder with the attribute `needs_headers` also gets the column `headers`, which may contain schema IDs, if the
    batch has it.

    Args:
        decoder: Decoder of the column.
        rows: Records with the columns of the data source.
        side: "value" or "key".
    """
    if getattr(decoder, "needs_headers", False) and "headers" in rows.schema.names:
        return cast(Any, decoder).decode(rows.column(side), rows.column("headers"))  # type: ignore[no-any-return]
    return decoder.decode(rows.column(side))


class ValueEncoder(Protocol):
    """Encoder of one format."""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """Encode rows as values; a null row becomes a null value.

        Raises:
            InvalidRecord: If a row cannot be encoded with the schema.
        """
