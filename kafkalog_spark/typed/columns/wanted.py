"""Whether wanted columns are among those that a schema gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError


def check_wanted(wanted: pa.DataType, has: pa.DataType, path: str) -> None:
    """Raises OptionError unless every field of `wanted` is one of `has`, with the same type; of structs some may do."""
    for field in wanted:
        name = f"{path}{field.name}"
        at = has.get_field_index(field.name)
        if at < 0:
            names = ", ".join(one.name for one in has)
            raise OptionError(f"the values have no field {name}", hint=f"they have {names}")
        _check_type(field.type, has.field(at).type, name)


def _check_type(wanted: Any, has: Any, name: str) -> None:
    if pa.types.is_struct(wanted) and pa.types.is_struct(has):
        check_wanted(wanted, has, f"{name}.")
    elif pa.types.is_list(wanted) and pa.types.is_list(has):
        _check_type(wanted.value_type, has.value_type, f"{name}.element")
    elif pa.types.is_map(wanted) and pa.types.is_map(has) and wanted.key_type == has.key_type:
        _check_type(wanted.item_type, has.item_type, f"{name}.value")
    elif wanted != has:
        raise OptionError(f"{name} is {has} by the schema of the values, not {wanted}", hint="cast it after reading")
