"""A schema for JSON values, from a sample of them, by the rules of Spark's JsonInferSchema with its default options.

Whole numbers are bigint, larger ones decimal(38,0); fractions are double; types that contradict each other are string.
Fields of a struct are in the order of their names. What is null everywhere is string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.ddl import map_leaves

_NULL = pa.null()
_WIDE = pa.decimal128(38, 0)
_DEPTH = 60


def json_schema(values: Iterable[bytes | None]) -> tuple[pa.Schema, int, int]:
    """(Columns of JSON objects, count of values, how many were no objects). Raises OptionError where there is none."""
    found: pa.DataType = _NULL
    count = others = 0
    for value in values:
        if value is None:
            continue
        count += 1
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            others += 1
            continue
        found = _merged(found, _type_of(parsed, 0))
    if found == _NULL or not found.num_fields:
        raise OptionError(f"none of {count} values is a JSON object with a field in it")
    columns = map_leaves(found, lambda kind: pa.string() if kind == _NULL else kind)
    return pa.schema(list(columns)), count, others


def _type_of(value: Any, depth: int) -> pa.DataType:
    if depth > _DEPTH:
        return pa.string()
    match value:
        case None:
            return _NULL
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(1 << 63) <= value < 1 << 63 else _WIDE if abs(value) < 10**38 else pa.float64()
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case dict():
            return pa.struct([(name, _type_of(value[name], depth + 1)) for name in sorted(value)])
    element: pa.DataType = _NULL
    for one in value:
        element = _merged(element, _type_of(one, depth + 1))
    return pa.list_(element)


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or other == _NULL:
        return one
    if one == _NULL:
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        types = {field.name: field.type for field in one}
        for field in other:
            types[field.name] = _merged(types.get(field.name, _NULL), field.type)
        return pa.struct([(name, types[name]) for name in sorted(types)])
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type))
    numbers = {pa.int64(): 0, _WIDE: 1, pa.float64(): 2}
    if one in numbers and other in numbers:
        return max(one, other, key=numbers.__getitem__)
    return pa.string()
