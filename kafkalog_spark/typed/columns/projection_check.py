"""Check that projected columns are among the columns of a schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError


def check_projection(projection: pa.DataType, has: pa.DataType, path: str) -> None:
    """Raises OptionError unless each of these fields is one of `has`, with the same type; of structs some may do."""
    for field in projection:
        name = f"{path}{field.name}"
        at = has.get_field_index(field.name)
        if at < 0:
            names = ", ".join(one.name for one in has)
            raise OptionError(f"the values have no field {name}", hint=f"they have {names}")
        _check_type(field.type, has.field(at).type, name)


def _check_type(type_: Any, has: Any, name: str) -> None:
    if pa.types.is_struct(type_) and pa.types.is_struct(has):
        check_projection(type_, has, f"{name}.")
    elif pa.types.is_list(type_) and pa.types.is_list(has):
        _check_type(type_.value_type, has.value_type, f"{name}.element")
    elif pa.types.is_map(type_) and pa.types.is_map(has) and type_.key_type == has.key_type:
        _check_type(type_.item_type, has.item_type, f"{name}.value")
    elif type_ != has:
        raise OptionError(f"{name} is {has} by the schema of the values, not {type_}", hint="cast it after reading")
