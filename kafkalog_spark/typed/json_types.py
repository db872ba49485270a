"""The types that JSON is decoded to."""

from __future__ import annotations

import pyarrow as pa

from kafkalog_spark.errors import OptionError

INTEGERS = {pa.int8(): (-128, 255), pa.int16(): (-(1 << 15), (1 << 15) - 1), pa.int32(): (-(1 << 31), (1 << 31) - 1),
             pa.int64(): (-(1 << 63), (1 << 63) - 1)}  # fmt: skip
"""What Jackson takes for them: its bytes go to 255, and what is above 127 becomes negative."""


def check_types(schema: pa.Schema) -> None:
    """Raises OptionError for a type that JSON is not decoded to here, and for two columns of one name."""
    _check_names([field.name for field in schema], "the schema")
    for field in schema:
        _check_type(field.type, field.name)


def _check_names(names: list[str], what: str) -> None:
    if len(set(names)) < len(names):
        raise OptionError(f"{what} has two fields of one name: {', '.join(names)}")


def _check_type(kind: pa.DataType, path: str) -> None:
    if pa.types.is_struct(kind):
        _check_names([field.name for field in kind], f"column '{path}'")
        for field in kind:
            _check_type(field.type, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        if kind.key_type != pa.string():
            raise OptionError(f"column '{path}': keys of a map in JSON are strings, not {kind.key_type}")
        _check_type(kind.item_type, f"{path}.value")
    elif pa.types.is_list(kind):
        _check_type(kind.value_type, f"{path}.element")
    elif not (
        kind in INTEGERS
        or kind in (pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
        or pa.types.is_decimal128(kind)
        or kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
    ):
        raise OptionError(f"column '{path}': the type {kind} is not decoded from JSON here")
