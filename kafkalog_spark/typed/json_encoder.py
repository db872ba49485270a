"""Rows to JSON, as Spark's to_json writes them (JacksonGenerator)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord, OptionError
from kafkalog_spark.typed.java_text import double_text, float_text, json_quoted
from kafkalog_spark.typed.json_options import JsonOptions
from kafkalog_spark.typed.json_types import check_types

Write = Callable[[Any], str]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JsonEncoder:
    """Encodes rows as objects; fields that are null are left out, unless ignoreNullFields is false.

    Raises OptionError for a pattern of dates or timestamps: they are written in Spark's own forms.
    """

    def __init__(self, given: pa.Schema, options: JsonOptions) -> None:
        given = pa.schema([field.with_type(_in_utc(field.type)) for field in given])
        check_types(given)
        if options.read_timestamp or options.read_local or options.read_date:
            raise OptionError("options of patterns are of reads: timestamps and dates are written as ISO 8601")
        self._options = options
        self._write = self._of_struct(list(given))

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode. Raises InvalidRecord."""
        texts = []
        for row in _plain(columns).to_pylist():
            try:
                texts.append(None if row is None else self._write(row).encode())
            except (ValueError, OverflowError) as error:
                raise InvalidRecord(f"a row cannot be written as JSON: {error}") from None
        return pa.array(texts, pa.binary())

    def _of_struct(self, fields: list[pa.Field]) -> Write:
        writers = [(field.name, json_quoted(field.name) + ":", self._of(field.type)) for field in fields]
        keep_nulls = not self._options.ignore_null_fields

        def write(row: dict[str, Any]) -> str:
            parts = []
            for name, begin, of_field in writers:
                value = row[name]
                if value is not None:
                    parts.append(begin + of_field(value))
                elif keep_nulls:
                    parts.append(begin + "null")
            return "{" + ",".join(parts) + "}"

        return write

    def _of(self, kind: pa.DataType) -> Write:
        if pa.types.is_struct(kind):
            return self._of_struct(list(kind))
        if pa.types.is_map(kind):
            of_value = self._of(kind.item_type)
            return lambda pairs: (
                "{" + ",".join(f"{json_quoted(k)}:{'null' if v is None else of_value(v)}" for k, v in pairs) + "}"
            )
        if pa.types.is_list(kind):
            of_element = self._of(kind.value_type)
            return lambda values: "[" + ",".join("null" if v is None else of_element(v) for v in values) + "]"
        if kind == pa.bool_():
            return lambda value: "true" if value else "false"
        if kind == pa.string():
            return json_quoted
        if kind == pa.binary():
            return lambda value: f'"{base64.b64encode(value).decode()}"'
        if kind == pa.float64():
            return lambda value: _number(double_text(value))
        if kind == pa.float32():
            return lambda value: _number(float_text(np.float32(value)))
        if kind == pa.date32():
            return lambda days: f'"{_date_text(days)}"'
        if pa.types.is_timestamp(kind):
            return self._timestamp if kind.tz is not None else _local_timestamp
        return str  # whole numbers and decimals

    def _timestamp(self, us: int) -> str:
        moment = (_EPOCH + timedelta(microseconds=us)).astimezone(self._options.zone)
        offset = moment.strftime("%z")
        shown = "Z" if offset in ("+0000", "-0000") else f"{offset[:3]}:{offset[3:5]}"
        return f'"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}{shown}"'


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The type with every zone of timestamps replaced: they are the same moments in each."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_in_utc(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _plain(array: pa.Array) -> pa.Array:
    """Dates and timestamps as whole numbers, everywhere: Python's own lose what lies outside of the years 1 to 9999."""
    kind = array.type
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = [_plain(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, names=[field.name for field in kind], mask=array.is_null())
    return array.cast(_plain_type(kind)) if _has_time(kind) else array


def _has_time(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_time(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_time(kind.field(i).type) for i in range(kind.num_fields))
    return kind == pa.date32() or bool(pa.types.is_timestamp(kind))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_plain_type(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if kind == pa.date32():
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _number(text: str) -> str:
    return text if text[-1].isdigit() else f'"{text}"'


def _date_text(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).strftime("%Y-%m-%d").rjust(10, "0")


def _local_timestamp(us: int) -> str:
    moment = _EPOCH + timedelta(microseconds=us)
    return f'"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}"'
