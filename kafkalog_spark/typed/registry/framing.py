"""How values name their schema, as Confluent's serializers write it.

    0x00, id (4 bytes, big-endian)       before the value
    0x01, GUID (16 bytes)                before the value, or in the header __value_schema_id (__key_schema_id)

In the header both forms are allowed, and the last header of that name counts. In Protobuf the indexes of the value's
message follow, in the header if the id is there: a count and as many indexes, zigzag varints, of a message in the file,
of one inside it, and so on. A single 0 stands for the first message of the file.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from kafkalog_spark.format.varints import UVARINT_BYTES, read_varint
from kafkalog_spark.typed.columns.binary_values import Values

NO_ID = "it does not begin with a schema's id (0x00 and four bytes), nor is one in its header"
"""Why a value that names no schema is bad."""
FIRST = (0,)  # indexes of the first message of a file
_ID_BYTES, _GUID_BYTES = 5, 17
_MOST_NESTED = 64  # messages are not nested deeper


class Framed(NamedTuple):
    """Values without their prefix. which int64[n]: the place in `ids` of each value's schema; -1: it names none, or
    there is no value. ids: an id, or a GUID as text. after_header_ids: by row, the bytes after the id in a header."""

    values: Values
    which: np.ndarray
    ids: list[int | str]
    after_header_ids: dict[int, bytes]


def unframed(values: Values, headers: Any, side: str) -> Framed:
    """Take the prefix from every value. headers: list<struct<key, value>> of each record, which precede it; or None."""
    starts, which = values.starts.copy(), np.full(len(values.starts), -1, np.int64)
    ids: dict[int | str, int] = {}
    sizes = values.ends - values.starts
    magic = np.where(sizes > 0, values.data[np.minimum(values.starts, len(values.data) - 1)], 255)
    for first, width in enumerate((_ID_BYTES, _GUID_BYTES)):
        rows = np.flatnonzero((magic == first) & (sizes >= width))
        if not len(rows):
            continue
        prefixes = values.data[values.starts[rows, None] + np.arange(1, width)]
        if first == 0:
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


def _in_headers(headers: Any, header: str) -> dict[int, bytes]:
    """The value of the last header of that name, by row; rows whose last one is null have none."""
    entries = headers.flatten()
    if not len(entries):
        return {}
    owners = headers.value_parent_indices().to_numpy()
    named = np.flatnonzero(pa.compute.equal(entries.field("key"), header).to_numpy(zero_copy_only=False))
    texts = entries.field("value").take(pa.array(named)).to_pylist()
    last = dict(zip(owners[named].tolist(), texts, strict=True))
    return {row: text for row, text in last.items() if text is not None}


def _header_id(text: bytes) -> tuple[int | str | None, bytes]:
    """(id or GUID, None if there is neither; the bytes after it)"""
    if text[:1] == b"\0" and len(text) >= _ID_BYTES:
        return int.from_bytes(text[1:_ID_BYTES], "big"), text[_ID_BYTES:]
    if text[:1] == b"\1" and len(text) >= _GUID_BYTES:
        return str(UUID(bytes=text[1:_GUID_BYTES])), text[_GUID_BYTES:]
    return None, b""


def take_indexes(framed: Framed) -> tuple[np.ndarray, list[Any]]:
    """Pass over the indexes of values that name a schema, changing `starts` -> (place of each value's indexes in a
    list, that list of the tuples, or of what is wrong with them). Other values have the first place."""
    data, starts, ends = framed.values
    which = np.zeros(len(starts), np.int64)
    places: dict[Any, int] = {FIRST: 0}
    named = framed.which >= 0
    for row, after in framed.after_header_ids.items():
        if named[row]:
            which[row] = places.setdefault(_indexes(after)[0], len(places))
            named[row] = False
    first = named & (ends > starts) & (data[np.minimum(starts, len(data) - 1)] == 0)
    heads: dict[bytes, tuple[Any, int]] = {}
    for row in np.flatnonzero(named & ~first).tolist():  # each distinct beginning is read once
        at, end = int(starts[row]), int(ends[row])
        head = data[at : min(end, at + 8)].tobytes()
        read = heads.get(head)
        if read is None:
            read = _indexes(data[at : min(end, at + UVARINT_BYTES * (_MOST_NESTED + 1))].tobytes())
            if len(heads) < 10_000 and 0 < read[1] <= len(head):  # bytes after the head do not matter
                heads[head] = read
        which[row] = places.setdefault(read[0], len(places))
        starts[row] += read[1]
    starts[first] += 1
    return which, list(places)


def _indexes(head: bytes) -> tuple[Any, int]:
    """(the indexes, or what is wrong with them; their bytes)"""
    try:
        count, after = read_varint(head, 0, len(head))
        if not 0 <= count <= _MOST_NESTED:
            return f"its message has {count} indexes", 0
        indexes = []
        for _ in range(count):
            index, after = read_varint(head, after, len(head))
            indexes.append(index)
    except IndexError:
        return "the indexes of its message do not end", 0
    return tuple(indexes) or FIRST, after
