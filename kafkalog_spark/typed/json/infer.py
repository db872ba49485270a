"""Inference of a schema from a sample of JSON values, like Spark's JsonInferSchema with default options.

The type of integers is bigint, or decimal(38,0) if one is larger. The type of fractions is double, and that of values
with conflicting types string. The fields of a struct are sorted by name. A field that is always null is a string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.ddl import map_leaves

_NULL = pa.null()
_WIDE_INTEGER = pa.decimal128(38, 0)
_MAX_DEPTH = 60  # a deeper part is a string


def infer_schema(values: Iterable[bytes | None]) -> tuple[pa.Schema, int, int]:
    """Infer the columns of JSON objects.

    Args:
        values: Sample of values; null values are ignored.

    Returns:
        (columns, number of values, number of values that are not JSON objects).

    Raises:
        OptionError: If no value is an object with a field.
    """
    inferred: pa.DataType = _NULL
    count = count_of_others = 0
    for value in values:
        if value is None:
            continue
        count += 1
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            count_of_others += 1
            continue
        inferred = _merge_types(inferred, _type_of(parsed, 0))
    if inferred == _NULL or not inferred.num_fields:
        raise OptionError(f"none of {count} values is a JSON object with a field in it")
    columns = map_leaves(inferred, lambda type_: pa.string() if type_ == _NULL else type_)
    return pa.schema(list(columns)), count, count_of_others


def _type_of(value: Any, depth: int) -> pa.DataType:
    if depth > _MAX_DEPTH:
        return pa.string()
    match value:
        case None:
            return _NULL
        case bool():
            return pa.bool_()
        case int():
            if -(1 << 63) <= value < 1 << 63:
                return pa.int64()
            return _WIDE_INTEGER if abs(value) < 10**38 else pa.float64()
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case dict():
            return pa.struct([(name, _type_of(value[name], depth + 1)) for name in sorted(value)])
    element: pa.DataType = _NULL
    for item in value:
        element = _merge_types(element, _type_of(item, depth + 1))
    return pa.list_(element)


def _merge_types(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    if first == second or second == _NULL:
        return first
    if first == _NULL:
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        types = {field.name: field.type for field in first}
        for field in second:
            types[field.name] = _merge_types(types.get(field.name, _NULL), field.type)
        return pa.struct([(name, types[name]) for name in sorted(types)])
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_merge_types(first.value_type, second.value_type))
    numbers = {pa.int64(): 0, _WIDE_INTEGER: 1, pa.float64(): 2}
    if first in numbers and second in numbers:
        return max(first, second, key=numbers.__getitem__)
    return pa.string()
