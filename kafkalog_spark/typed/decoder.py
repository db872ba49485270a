"""Interfaces of decoders and encoders: binary Arrow arrays to Arrow columns, and back.

Nothing here or in the formats knows Spark or a Kafka log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa


class Decoded(NamedTuple):
    """Decoded values of one batch.

    Attributes:
        columns: One row per value, with the decoder's schema. A row is null if its value is null.
        bad: bool[n], true for each malformed value; None if all values are well-formed. The row of a malformed value
            contains the fields that could be decoded, or only nulls.
        why: Return why value i is malformed, as one line that does not repeat the value. Call it for bad values only.
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

    The column `headers` is passed along if the batch has it and the decoder looks for schema IDs in headers
    (attribute `headers_too`).

    Args:
        decoder: Decoder of the column.
        rows: Records with the columns of the data source.
        side: "value" or "key".
    """
    headers_too = getattr(decoder, "headers_too", False) and "headers" in rows.schema.names
    return decoder.decode(rows.column(side), *([rows.column("headers")] if headers_too else []))


class ValueEncoder(Protocol):
    """Encoder of one format."""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """Encode rows as values; a null row becomes a null value.

        Raises:
            InvalidRecord: If a row cannot be encoded with the schema.
        """
