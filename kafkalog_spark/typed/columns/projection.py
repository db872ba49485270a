"""The columns a decoder fills: an Arrow type cut into one numbered column for each of its parts.

Numbers are those of a walk from the root down: a struct before its fields, a list before its elements. A map is a list
of structs (key, value).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError

NOT_PROJECTED = -1  # the number of a part that is decoded, and so checked, but kept nowhere


@dataclass(frozen=True)
class ColumnTree:
    """Part of an Arrow type. `children`: a struct's fields, a list's elements, a map's entries (key, value)."""

    number: int
    type: pa.DataType
    children: tuple[ColumnTree, ...] = ()

    def all(self) -> list[ColumnTree]:
        """This part and everything below it, by number."""
        return [self, *(part for child in self.children for part in child.all())]

    def under(self) -> list[int]:
        """Columns that get an entry when this part is null: itself and a struct's fields, but nothing below a list."""
        if not pa.types.is_struct(self.type):
            return [self.number]
        return [self.number, *(number for child in self.children for number in child.under())]


def tree_of(type_: pa.DataType, first: int = 0) -> ColumnTree:
    """The parts of an Arrow type, numbered from `first` on."""
    if pa.types.is_struct(type_):
        parts = [type_.field(i).type for i in range(type_.num_fields)]
    elif pa.types.is_map(type_):
        parts = [pa.struct([pa.field("key", type_.key_type, nullable=False), type_.item_field])]
    elif pa.types.is_list(type_):
        parts = [type_.value_type]
    else:
        parts = []
    children: list[ColumnTree] = []
    at = first + 1
    for part in parts:
        child = tree_of(part, at)
        children.append(child)
        at += len(child.all())
    return ColumnTree(first, type_, tuple(children))


# Whether projected columns are among those that a schema gives.


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
