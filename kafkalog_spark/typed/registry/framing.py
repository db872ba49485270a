"""The prefix with which Confluent's serializers name the schema of a value.

    0x00, ID (4 bytes, big-endian)       before the value
    0x01, GUID (16 bytes)                before the value, or in the header __value_schema_id (__key_schema_id)

A header may contain either form, and the last header of that name counts. In Protobuf the indexes of the value's
message follow the ID, also in a header: a count and as many indexes, as zigzag varints. They are the index of a message
in the file, of a message inside that one, and so on. A single 0 stands for the first message of the file.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from kafkalog_spark.format.varints import UVARINT_BYTES, read_varint
from kafkalog_spark.typed.columns.binary_values import Values

NO_ID = "it does not begin with a schema's id (0x00 and four bytes), nor is one in its header"
"""Why a value that names no schema is malformed."""
FIRST = (0,)  # indexes of the first message in a file
_ID_BYTES, _GUID_BYTES = 5, 17  # with the magic byte
_MAX_INDEXES = 64
_HEAD_BYTES = 8  # beginnings of values that are compared to find equal indexes
_MAX_HEADS = 10_000


class Framed(NamedTuple):
    """Values without their prefixes.

    Attributes:
        values: n values.
        which: int64[n], the index in `ids` of each value's schema; -1 if the value names no schema or is null.
        ids: Schema IDs, and GUIDs as text.
        after_header_ids: The bytes after the ID in a header, by row.
    """

    values: Values
    which: np.ndarray
    ids: list[int | str]
    after_header_ids: dict[int, bytes]


def unframed(values: Values, headers: Any, side: str) -> Framed:
    """Remove the prefix of every value.

    Args:
        values: n values.
        headers: Headers of the records, list<struct<key, value>>, or None. A header overrides the prefix of its value.
        side: "value" or "key".
    """
    starts, which = values.starts.copy(), np.full(len(values.starts), -1, np.int64)
    ids: dict[int | str, int] = {}
    sizes = values.ends - values.starts
    magic = np.where(sizes > 0, values.data[np.minimum(values.starts, len(values.data) - 1)], 255)
    for magic_byte, width in enumerate((_ID_BYTES, _GUID_BYTES)):
        rows = np.flatnonzero((magic == magic_byte) & (sizes >= width))
        if not len(rows):
            continue
        prefixes = values.data[values.starts[rows, None] + np.arange(1, width)]
        if magic_byte == 0:
            distinct, inverse = np.unique(prefixes.view(">u4")[:, 0].astype(np.int64), return_inverse=True)
            names: list[int | str] = distinct.tolist()
        else:
            distinct, inverse = np.unique(prefixes, axis=0, return_inverse=True)
            names = [str(UUID(bytes=guid.tobytes())) for guid in distinct]
        which[rows] = np.array([ids.setdefault(name, len(ids)) for name in names], np.int64)[inverse.reshape(-1)]
        starts[rows] += width
    after_header_ids: dict[int, bytes] = {}
    if headers is not None:
        for row, text in _in_headers(headers, f"__{side}_schema_id").items():
            if values.ends[row] < 0:
                continue
            name, after_header_ids[row] = _header_id(text)
            which[row] = -1 if name is None else ids.setdefault(name, len(ids))
            starts[row] = values.starts[row]
    return Framed(Values(values.data, starts, values.ends), which, list(ids), after_header_ids)


def take_indexes(framed: Framed) -> tuple[np.ndarray, list[Any]]:
    """Read the message indexes of all values that name a schema, and advance their `starts` in place.

    Returns:
        (int64[n], the number of each value's indexes in the list; a list of tuples of indexes, with a text instead of a
        tuple if indexes are malformed). Values without a schema have number 0.
    """
    data, starts, ends = framed.values
    which = np.zeros(len(starts), np.int64)
    numbers: dict[Any, int] = {FIRST: 0}
    named = framed.which >= 0
    for row, after in framed.after_header_ids.items():
        if named[row]:
            which[row] = numbers.setdefault(_indexes(after)[0], len(numbers))
            named[row] = False
    first = named & (ends > starts) & (data[np.minimum(starts, len(data) - 1)] == 0)
    heads: dict[bytes, tuple[Any, int]] = {}
    for row in np.flatnonzero(named & ~first).tolist():  # equal beginnings are parsed once
        at, end = int(starts[row]), int(ends[row])
        head = data[at : min(end, at + _HEAD_BYTES)].tobytes()
        read = heads.get(head)
        if read is None:
            read = _indexes(data[at : min(end, at + UVARINT_BYTES * (_MAX_INDEXES + 1))].tobytes())
            if len(heads) < _MAX_HEADS and 0 < read[1] <= len(head):  # the indexes end within the head
                heads[head] = read
        which[row] = numbers.setdefault(read[0], len(numbers))
        starts[row] += read[1]
    starts[first] += 1
    return which, list(numbers)


def _in_headers(headers: Any, header: str) -> dict[int, bytes]:
    """Return the value of each record's last header with a name, by row, if it is not null."""
    entries = headers.flatten()
    if not len(entries):
        return {}
    owners = headers.value_parent_indices().to_numpy()
    named = np.flatnonzero(pa.compute.equal(entries.field("key"), header).to_numpy(zero_copy_only=False))
    texts = entries.field("value").take(pa.array(named)).to_pylist()
    last = dict(zip(owners[named].tolist(), texts, strict=True))
    return {row: text for row, text in last.items() if text is not None}


def _header_id(text: bytes) -> tuple[int | str | None, bytes]:
    """Return (ID, GUID as text, or None if the header has neither form; the bytes after it)."""
    if text[:1] == b"\0" and len(text) >= _ID_BYTES:
        return int.from_bytes(text[1:_ID_BYTES], "big"), text[_ID_BYTES:]
    if text[:1] == b"\1" and len(text) >= _GUID_BYTES:
        return str(UUID(bytes=text[1:_GUID_BYTES])), text[_GUID_BYTES:]
    return None, b""


def _indexes(head: bytes) -> tuple[Any, int]:
    """Return (tuple of indexes, or text that says why they are malformed; number of their bytes)."""
    try:
        count, after = read_varint(head, 0, len(head))
        if not 0 <= count <= _MAX_INDEXES:
            return f"its message has {count} indexes", 0
        indexes = []
        for _ in range(count):
            index, after = read_varint(head, after, len(head))
            indexes.append(index)
    except IndexError:
        return "the indexes of its message do not end", 0
    return tuple(indexes) or FIRST, after
