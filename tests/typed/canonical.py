"""Arrow arrays as comparable Python values: NaN equals itself, strings are bytes, maps have no order."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pyarrow as pa


def canonical(array: Any) -> list[Any]:
    """The entries of an array. Strings are given as they are held, UTF-8 or not."""
    if isinstance(array, pa.ChunkedArray):
        return [one for chunk in array.chunks for one in canonical(chunk)]
    type_, valid = array.type, array.is_valid().to_pylist()
    if pa.types.is_struct(type_):
        children = [canonical(array.field(i)) for i in range(type_.num_fields)]
        names = [one.name for one in type_]
        rows = zip(*children, strict=True) if children else ((),) * len(array)
        found: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
    elif pa.types.is_map(type_) or pa.types.is_list(type_):
        ends = array.offsets.to_pylist()
        if pa.types.is_map(type_):
            pairs = list(zip(canonical(array.keys), canonical(array.items), strict=True))
            found = [dict(pairs[a:b]) for a, b in itertools.pairwise(ends)]
        else:
            held = canonical(array.values)
            found = [held[a:b] for a, b in itertools.pairwise(ends)]
    elif pa.types.is_string(type_):
        found = pa.Array.from_buffers(
            pa.binary(), len(array), array.buffers(), array.null_count, array.offset
        ).to_pylist()
    elif pa.types.is_floating(type_):
        found = [_number(one) for one in array.to_pylist()]
    elif pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_duration(type_):
        found = array.view(pa.int32() if pa.types.is_date(type_) else pa.int64()).to_pylist()
    else:
        found = array.to_pylist()
    return [one if there else None for one, there in zip(found, valid, strict=True)]


def _number(value: float | None) -> Any:
    if value is None or not (math.isnan(value) or value == 0):
        return value
    return str(value)
