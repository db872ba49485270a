"""Values of a column that is being encoded, at any nesting depth.

Each value has the index of its top-level row, so that an error can name the row. Errors also name the schema with which
the row is encoded, and the path of the field in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.typed.columns.byte_slices import valid_of

NOT_WRITTEN = -1
"""Row index of an entry under a null parent. It is not written, so no value of it is an error."""


class Entries(NamedTuple):
    """The values of a column at one depth.

    Attributes:
        array: n values.
        rows: int64[n], the index of the top-level row of each value, or NOT_WRITTEN.
    """

    array: pa.Array
    rows: np.ndarray

    @classmethod
    def of_rows(cls, columns: pa.StructArray) -> Entries:
        """Make entries of the rows to encode. The fields of a null row are not written."""
        rows, valid = np.arange(len(columns)), valid_of(columns)
        return cls(columns, rows if valid is None else np.where(valid, rows, NOT_WRITTEN))

    def fields(self) -> list[Entries]:
        """Return the entries of each field of a struct. The fields of a null struct are null and not written."""
        valid = valid_of(self.array)
        rows = self.rows if valid is None else np.where(valid, self.rows, NOT_WRITTEN)
        return [Entries(field, rows) for field in self.array.flatten()]

    def elements(self) -> tuple[Entries, np.ndarray]:
        """Return the elements of lists, or the key/value pairs of maps as structs.

        Returns:
            (elements of all lists; int64[n + 1], the offsets of each list in them).
        """
        array = _list_of_pairs(self.array) if pa.types.is_map(self.array.type) else self.array
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return Entries(array.flatten(), np.repeat(self.rows, sizes)), offsets

    def refuse_where(self, wrong: np.ndarray, schema_name: str, path: str, problem: str) -> None:
        """Raise InvalidRecord if `wrong` marks an entry that is written and is not null. The error names the first one.

        Args:
            wrong: bool[n].
            schema_name: The schema with which the row is encoded.
            path: Path of the field.
            problem: What is wrong with the entry.
        """
        if wrong.any():
            valid = valid_of(self.array)
            self._refuse_first(wrong if valid is None else wrong & valid, schema_name, path, problem)

    def refuse_nulls(self, schema_name: str, path: str, problem: str) -> None:
        """Raise InvalidRecord if an entry is null and has to be written. Arguments as for `refuse_where`."""
        valid = valid_of(self.array)
        if valid is not None:
            self._refuse_first(~valid, schema_name, path, problem)

    def _refuse_first(self, wrong: np.ndarray, schema_name: str, path: str, problem: str) -> None:
        indexes = np.flatnonzero(wrong & (self.rows != NOT_WRITTEN))
        if len(indexes):
            raise InvalidRecord(f"row {self.rows[indexes[0]]} does not fit {schema_name}: {path}: {problem}")


def _list_of_pairs(array: pa.MapArray) -> pa.ListArray:
    """Return a map array as a list array over the same buffers, because Arrow flattens lists only."""
    pairs = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    validity_buffer, offset_buffer = array.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(pairs.type), len(array), [validity_buffer, offset_buffer], offset=array.offset, children=[pairs]
    )
