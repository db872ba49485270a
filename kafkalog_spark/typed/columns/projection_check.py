"""Checks that projected columns exist in the schema of the values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError


def check_projection(projection: pa.DataType, available: pa.DataType, path: str) -> None:
    """Check that a projection is a subset of a struct. Structs inside it may be narrowed, too.

    Args:
        projection: Struct of the projected fields.
        available: Struct of the fields that the schema of the values has.
        path: Prefix of field names in errors: empty, or the path of the struct followed by a dot.

    Raises:
        OptionError: If a projected field does not exist or has another type.
    """
    for field in projection:
        name = f"{path}{field.name}"
        i = available.get_field_index(field.name)
        if i < 0:
            names = ", ".join(other.name for other in available)
            raise OptionError(f"the values have no field {name}", hint=f"they have {names}")
        _check_type(field.type, available.field(i).type, name)


def _check_type(projected: Any, available: Any, name: str) -> None:
    if pa.types.is_struct(projected) and pa.types.is_struct(available):
        check_projection(projected, available, f"{name}.")
    elif pa.types.is_list(projected) and pa.types.is_list(available):
        _check_type(projected.value_type, available.value_type, f"{name}.element")
    elif pa.types.is_map(projected) and pa.types.is_map(available) and projected.key_type == available.key_type:
        _check_type(projected.item_type, available.item_type, f"{name}.value")
    elif projected != available:
        raise OptionError(
            f"{name} has type {available} in the schema of the values, not {projected}",
            hint="cast it after reading",
        )
