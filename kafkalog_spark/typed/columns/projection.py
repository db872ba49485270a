"""The columns a decoder fills: an Arrow type cut into one numbered column for each of its parts.

Numbers are those of a walk from the root down: a struct before its fields, a list before its elements. A map is a list
of structs (key, value).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

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
