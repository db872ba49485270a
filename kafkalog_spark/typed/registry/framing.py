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

NO_SCHEMA_ID = "it does not begin with a schema's id (0x00 and four bytes), nor is one in its header"
"""Why a value that names no schema is malformed."""
FIRST_MESSAGE = (0,)  # indexes of the first message in a file
_ID_BYTES, _GUID_BYTES = 5, 17  # including the first byte, 0x00 or 0x01
_MAX_INDEXES = 64
_MAX_INDEX_BYTES = UVARINT_BYTES * (_MAX_INDEXES + 1)
_CACHE_KEY_BYTES = 8  # beginning of a value by which its parsed indexes are cached
_MAX_CACHED = 10_000


class UnframedValues(NamedTuple):
    """Values without their prefixes.

    Attributes:
        values: n values.
        id_numbers: int64[n], the index in `ids` of each value's schema; -1 if the value names no schema or is null.
        ids: Schema IDs, and GUIDs as text.
        header_remainders: The bytes after the ID in a header, by row.
    """

    values: Values
    id_numbers: np.ndarray
    ids: list[int | str]
    header_remainders: dict[int, bytes]


def id_prefix(schema_id: int) -> bytes:
    """Return the prefix of values with a schema."""
    return b"\0" + schema_id.to_bytes(4, "big")


def remove_prefixes(values: Values, headers: Any, side: str) -> UnframedValues:
    """Remove the prefix of every value.

    Args:
        values: n values.
        headers: Headers of the records, list<struct<key, value>>, or None. A header overrides the prefix of its value.
        side: "value" or "key".
    """
    starts, id_numbers = values.starts.copy(), np.full(len(values.starts), -1, np.int64)
    numbers: dict[int | str, int] = {}
    sizes = values.ends - values.starts
    first_bytes = np.where(sizes > 0, values.data[np.minimum(values.starts, len(values.data) - 1)], 255)
    for magic_byte, width in enumerate((_ID_BYTES, _GUID_BYTES)):
        rows = np.flatnonzero((first_bytes == magic_byte) & (sizes >= width))
        if not len(rows):
            continue
        prefixes = values.data[values.starts[rows, None] + np.arange(1, width)]
        if magic_byte == 0:
            distinct, inverse = np.unique(prefixes.view(">u4")[:, 0].astype(np.int64), return_inverse=True)
            ids: list[int | str] = distinct.tolist()
        else:
            distinct, inverse = np.unique(prefixes, axis=0, return_inverse=True)
            ids = [str(UUID(bytes=guid.tobytes())) for guid in distinct]
        distinct_numbers = np.array([numbers.setdefault(id_, len(numbers)) for id_ in ids], np.int64)
        id_numbers[rows] = distinct_numbers[inverse.reshape(-1)]
        starts[rows] += width
    header_remainders: dict[int, bytes] = {}
    if headers is not None:
        for row, text in _last_header_values(headers, f"__{side}_schema_id").items():
            if values.ends[row] < 0:
                continue
            header_id, header_remainders[row] = _parse_header(text)
            id_numbers[row] = -1 if header_id is None else numbers.setdefault(header_id, len(numbers))
            starts[row] = values.starts[row]
    return UnframedValues(Values(values.data, starts, values.ends), id_numbers, list(numbers), header_remainders)


def read_message_indexes(unframed: UnframedValues) -> tuple[np.ndarray, list[Any]]:
    """Read the message indexes of all values that name a schema, and advance their `starts` in place.

    Returns:
        (int64[n], the number of each value's indexes in the list; a list of tuples of indexes, with a text instead of a
        tuple if indexes are malformed). Values without a schema have number 0.
    """
    data, starts, ends = unframed.values
    index_numbers = np.zeros(len(starts), np.int64)
    numbers: dict[Any, int] = {FIRST_MESSAGE: 0}
    in_value = unframed.id_numbers >= 0  # whether the indexes are at the beginning of the value
    for row, remainder in unframed.header_remainders.items():
        if in_value[row]:
            indexes, _ = _parse_indexes(remainder)
            index_numbers[row] = numbers.setdefault(indexes, len(numbers))
            in_value[row] = False
    is_first = in_value & (ends > starts) & (data[np.minimum(starts, len(data) - 1)] == 0)
    starts[is_first] += 1
    cache: dict[bytes, tuple[Any, int]] = {}
    for row in np.flatnonzero(in_value & ~is_first).tolist():
        at, end = int(starts[row]), int(ends[row])
        cache_key = data[at : min(end, at + _CACHE_KEY_BYTES)].tobytes()
        parsed = cache.get(cache_key)
        if parsed is None:
            parsed = _parse_indexes(data[at : min(end, at + _MAX_INDEX_BYTES)].tobytes())
            if len(cache) < _MAX_CACHED and 0 < parsed[1] <= len(cache_key):  # the key contains all indexes
                cache[cache_key] = parsed
        indexes, size = parsed
        index_numbers[row] = numbers.setdefault(indexes, len(numbers))
        starts[row] += size
    return index_numbers, list(numbers)


def _last_header_values(headers: Any, name: str) -> dict[int, bytes]:
    """Return the value of each record's last header with a name, by row, if it is not null."""
    entries = headers.flatten()
    if not len(entries):
        return {}
    owners = headers.value_parent_indices().to_numpy()
    matching = np.flatnonzero(pa.compute.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    texts = entries.field("value").take(pa.array(matching)).to_pylist()
    last = dict(zip(owners[matching].tolist(), texts, strict=True))
    return {row: text for row, text in last.items() if text is not None}


def _parse_header(text: bytes) -> tuple[int | str | None, bytes]:
    """Return (ID, GUID as text, or None if the header has neither form; the bytes after it)."""
    if text[:1] == b"\0" and len(text) >= _ID_BYTES:
        return int.from_bytes(text[1:_ID_BYTES], "big"), text[_ID_BYTES:]
    if text[:1] == b"\1" and len(text) >= _GUID_BYTES:
        return str(UUID(bytes=text[1:_GUID_BYTES])), text[_GUID_BYTES:]
    return None, b""


def _parse_indexes(data: bytes) -> tuple[Any, int]:
    """Parse the indexes at the beginning of `data`.

    Returns:
        (tuple of indexes, or a text that says why they are malformed; number of their bytes, 0 if they are malformed).
    """
    try:
        count, end = read_varint(data, 0, len(data))
        if not 0 <= count <= _MAX_INDEXES:
            return f"its message has {count} indexes", 0
        indexes = []
        for _ in range(count):
            index, end = read_varint(data, end, len(data))
            indexes.append(index)
    except IndexError:
        return "the indexes of its message do not end", 0
    return tuple(indexes) or FIRST_MESSAGE, end
