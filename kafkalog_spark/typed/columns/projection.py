"""The columns that a decoder fills: an Arrow type as a tree with one numbered column for each of its parts.

Columns are numbered in pre-order: a struct before its fields, a list before its elements. A map is a list of structs
(key, value).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

NOT_PROJECTED = -1  # instead of a column's number: the part is decoded to validate it, and not stored


@dataclass(frozen=True)
class ColumnTree:
    """One part of an Arrow type. `children` are the fields of a struct, the elements of a list or entries of a map."""

    number: int
    type: pa.DataType
    children: tuple[ColumnTree, ...] = ()

    def field(self, name: str) -> ColumnTree | None:
        """Return the column of a struct's field; None if the struct has no such field."""
        i = self.type.get_field_index(name)
        return self.children[i] if i >= 0 else None

    def preorder(self) -> list[ColumnTree]:
        """Return this part and all its descendants by number."""
        return [self, *(part for child in self.children for part in child.preorder())]

    def null_columns(self) -> list[int]:
        """Return the numbers of the columns that get a null entry when this part is null.

        These are the column itself and, for a struct, those of its fields. A null list adds no elements.
        """
        if not pa.types.is_struct(self.type):
            return [self.number]
        return [self.number, *(number for child in self.children for number in child.null_columns())]


def tree_of(type_: pa.DataType, first: int = 0) -> ColumnTree:
    """Return the tree of an Arrow type.

    Args:
        type_: Type of the root.
        first: Number of the root's column.
    """
    if pa.types.is_struct(type_):
        parts = [type_.field(i).type for i in range(type_.num_fields)]
    elif pa.types.is_map(type_):
        parts = [pa.struct([pa.field("key", type_.key_type, nullable=False), type_.item_field])]
    elif pa.types.is_list(type_):
        parts = [type_.value_type]
    else:
        parts = []
    children: list[ColumnTree] = []
    number = first + 1
    for part in parts:
        child = tree_of(part, number)
        children.append(child)
        number += len(child.preorder())
    return ColumnTree(first, type_, tuple(children))
