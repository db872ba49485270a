"""Which message of its file a value in Protobuf is: the indexes between the schema's id and the message.

A count and as many indexes, zigzag varints: of a message in the file, of one inside it, and so on. A single 0 stands
for the first message of the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.varints import UVARINT_BYTES, read_varint

FIRST = (0,)
_MOST = 64
"""Messages are not nested deeper."""


def take_indexes(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Pass over the indexes, changing `starts` -> (place of each value's indexes in the list, that list).

    In the list: the indexes as a tuple, or what is wrong with them. Values that have no end (-1) have the first place.
    """
    which = np.zeros(len(starts), np.int64)
    known: dict[Any, int] = {FIRST: 0}
    begins = np.where(ends > starts, data[np.minimum(starts, len(data) - 1)], 255)
    first = (begins == 0) & (ends > starts)
    rest = np.flatnonzero(~first & (ends >= 0))
    heads: dict[bytes, tuple[Any, int]] = {}
    for row in rest:  # each distinct beginning is read once
        at, end = int(starts[row]), int(ends[row])
        head = data[at : min(end, at + 8)].tobytes()
        found = heads.get(head)
        if found is None:
            found = _indexes(data, at, end)
            if len(heads) < 10_000:
                heads[head] = found
        which[row] = known.setdefault(found[0], len(known))
        starts[row] += found[1]
    starts[first] += 1
    return which, list(known)


def _indexes(data: np.ndarray, at: int, end: int) -> tuple[Any, int]:
    """(the indexes, or what is wrong with them; their bytes)"""
    head = data[at : min(end, at + UVARINT_BYTES * (_MOST + 1))].tobytes()
    try:
        count, after = read_varint(head, 0, len(head))
        if not 0 <= count <= _MOST:
            return f"its message has {count} indexes", 0
        indexes = []
        for _ in range(count):
            one, after = read_varint(head, after, len(head))
            indexes.append(one)
    except IndexError:
        return "the indexes of its message do not end", 0
    return tuple(indexes) or FIRST, after


def message_at(file: Any, indexes: tuple[int, ...]) -> Any:
    """The message of a file's descriptor that indexes name. Raises OptionError."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    messages, name = proto.message_type, proto.package
    for index in indexes:
        if not 0 <= index < len(messages):
            raise OptionError(f"the file has no message of indexes {list(indexes)}")
        name = f"{name}.{messages[index].name}" if name else messages[index].name
        messages = messages[index].nested_type
    return file.pool.FindMessageTypeByName(name)
