"""Values of a topic as typed columns: what every format gives, and the table of formats.

    decoder = ResolvedFormat("json", {"timezone": "UTC"}).decoder(pa.schema([("id", pa.int64())]))
    decoded = decoder.decode(batch["value"])      # Decoded: a StructArray, which values were bad, and why

A format is a module of this package, or an object in one, named in FORMATS, with the names of `Format` below. Nothing
here knows Spark or a log: bytes in Arrow come in, columns in Arrow go out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa


class Decoded(NamedTuple):
    """The result of decoding a batch of values.

    columns: as many rows as there were values, of the decoder's schema; a row is null where there was no value.
    bad: bool of that length, None for no bad value; a bad value's row has what could be read of it, or nulls.
    why: what is wrong with value i, for those that are bad: one line that does not repeat the value.
    """

    columns: pa.StructArray
    bad: np.ndarray | None
    why: Callable[[int], str]


class ValueDecoder(Protocol):
    """Decodes values of one format. schema: the columns that it gives, which are those of the projection."""

    schema: pa.Schema

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        """Values to columns. Malformed values are reported per row; decode never raises on content."""


def decode_column(decoder: ValueDecoder, rows: pa.RecordBatch, side: str) -> Decoded:
    """Decode the column `value` or `key`, with the headers where a schema's id may be in these (`headers_too`)."""
    headers_too = getattr(decoder, "headers_too", False) and "headers" in rows.schema.names
    return decoder.decode(rows.column(side), *([rows.column("headers")] if headers_too else []))


class ValueEncoder(Protocol):
    """Encodes rows as values of one format."""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """Rows to values; a null row is a null value. Raises InvalidRecord for a row that cannot be one."""
