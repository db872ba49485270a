"""How values name their schema, as Confluent's serializers write it.

    0x00, id (4 bytes, big-endian)       before the value
    0x01, GUID (16 bytes)                before the value, or in the header __value_schema_id (__key_schema_id)

In the header both forms are allowed. Before a value in Protobuf follow the indexes of its message, in the header as
well where the id stands there.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.columns.buffer_pool import Values

ID, GUID = 0, 1
NO_ID = "it does not begin with a schema's id (0x00 and four bytes)"
"""Why a value that names no schema is bad."""
_ID_BYTES, _GUID_BYTES = 5, 17


class Framed(NamedTuple):
    """Values without their prefix. which int64[n]: the place in `ids` of each value's schema; -1: it names none, or
    there is no value. ids: an id, or a GUID as text."""

    values: Values
    which: np.ndarray
    ids: list[int | str]


def header_name(side: str) -> str:
    """Name of the header that names the schema of a value or key."""
    return f"__{side}_schema_id"


def unframed(values: Values, headers: Any = None, name: str = "") -> Framed:
    """Take the prefix from every value. headers: list<struct<key, value>> of each record, in which `name` goes before
    the prefix."""
    n = len(values.starts)
    starts, which = values.starts.copy(), np.full(n, -1, np.int64)
    ids: dict[int | str, int] = {}
    there = values.ends >= 0
    sizes = values.ends - values.starts
    magic = np.where(there & (sizes > 0), values.data[np.minimum(values.starts, len(values.data) - 1)], 255)
    with_id = np.flatnonzero((magic == ID) & (sizes >= _ID_BYTES))
    if len(with_id):
        at = values.starts[with_id]
        numbers = np.zeros(len(with_id), np.int64)
        for i in range(1, _ID_BYTES):
            numbers = (numbers << 8) | values.data[at + i]
        distinct, inverse = np.unique(numbers, return_inverse=True)
        places = np.array([ids.setdefault(int(one), len(ids)) for one in distinct], np.int64)
        which[with_id] = places[inverse]
        starts[with_id] += _ID_BYTES
    with_guid = np.flatnonzero((magic == GUID) & (sizes >= _GUID_BYTES))
    if len(with_guid):
        at = values.starts[with_guid, None] + np.arange(1, _GUID_BYTES)
        distinct, inverse = np.unique(values.data[at], axis=0, return_inverse=True)
        places = np.array([ids.setdefault(str(UUID(bytes=one.tobytes())), len(ids)) for one in distinct], np.int64)
        which[with_guid] = places[inverse.reshape(-1)]
        starts[with_guid] += _GUID_BYTES
    if headers is not None:
        _from_headers(headers, name, values, starts, which, ids)
    return Framed(Values(values.data, starts, values.ends), which, list(ids))


def _from_headers(
    headers: Any, name: str, values: Values, starts: np.ndarray, which: np.ndarray, ids: dict[int | str, int]
) -> None:
    """Take schemas from headers, which go before what values begin with."""
    entries = headers.flatten()
    if not len(entries):
        return
    owners = headers.value_parent_indices().to_numpy()
    named = np.flatnonzero(pa.compute.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    for at, text in zip(named, entries.field("value").take(pa.array(named)).to_pylist(), strict=True):
        row = int(owners[at])
        if text is None or values.ends[row] < 0:
            continue
        found: int | str | None = None
        if text[:1] == b"\x00" and len(text) >= _ID_BYTES:
            found = int.from_bytes(text[1:_ID_BYTES], "big")
        elif text[:1] == b"\x01" and len(text) >= _GUID_BYTES:
            found = str(UUID(bytes=text[1:_GUID_BYTES]))
        if found is not None:
            which[row] = ids.setdefault(found, len(ids))
            starts[row] = values.starts[row]
