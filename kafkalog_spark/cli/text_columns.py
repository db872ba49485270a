"""Composition of text columns from parts, without a Python object per record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LARGE = pa.large_binary()
"""Type of composed texts: they may exceed 2 GB even if their columns do not."""


HeaderParts = Callable[[pa.Array, pa.Array], Sequence[bytes | pa.Array]]
"""Function from the names and values of headers to the parts of their text."""


def joined(parts: Sequence[bytes | pa.Array], rows: pa.RecordBatch) -> pa.Buffer | bytes:
    """Return the parts of all rows, concatenated row by row. Columns are of type LARGE and without nulls."""
    if not rows.num_rows or not parts:
        return b""
    if not any(isinstance(part, pa.Array) for part in parts):
        return b"".join(part for part in parts if isinstance(part, bytes)) * rows.num_rows
    whole = concatenated(*parts)
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, np.int64)[[whole.offset, whole.offset + len(whole)]]
    return data.slice(int(ends[0]), int(ends[1] - ends[0])) if data is not None else b""


def concatenated(*parts: bytes | pa.Array) -> pa.Array:
    """Concatenate parts row by row. They are as for `joined`, and at least one is a column."""
    arrays = (part if isinstance(part, pa.Array) else pa.scalar(part, LARGE) for part in parts)
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", LARGE))


def numbers(column: pa.Array) -> pa.Array:
    """Return a column of numbers as text."""
    return column.cast(pa.string()).cast(LARGE)


def milliseconds(column: pa.Array) -> pa.Array:
    """Return a timestamp column as int64 ms."""
    return pa.array(column.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000)


def header_text(column: pa.Array, header_parts: HeaderParts) -> pa.Array:
    """Return headers as text, separated by commas; empty for a record without headers.

    Args:
        column: The column `headers`.
        header_parts: Called with the names and values of all headers, of type LARGE; values may be null.
    """
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    flat = column.flatten()  # only the headers of this slice, and none for nulls
    parts = header_parts(flat.field(0).cast(LARGE), flat.field(1).cast(LARGE))
    text = concatenated(*parts) if len(flat) else pa.array([], LARGE)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), text), pa.scalar(b",", LARGE))
