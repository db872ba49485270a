"""Entries of a column that is being encoded, with the indexes of their rows, which errors name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.typed.columns.byte_slices import valid_of
from kafkalog_spark.typed.columns.number_slices import whole_numbers

NOT_WRITTEN = -1  # instead of the index of a row: the entry is inside a null and is not written


class Entries(NamedTuple):
    """The entries of a column, at any depth.

    Attributes:
        array: n entries.
        rows: int64[n], the index of the row that each entry belongs to, or NOT_WRITTEN.
    """

    array: pa.Array
    rows: np.ndarray

    @classmethod
    def of(cls, columns: pa.StructArray) -> Entries:
        """Return the rows of an encoder as entries. A null row becomes a null value, so its fields are not written."""
        rows, valid = np.arange(len(columns)), valid_of(columns)
        return cls(columns, rows if valid is None else np.where(valid, rows, NOT_WRITTEN))

    def fields(self) -> list[Entries]:
        """Return the entries of each field of a struct. The fields of a null struct are null and not written."""
        valid = valid_of(self.array)
        rows = self.rows if valid is None else np.where(valid, self.rows, NOT_WRITTEN)
        return [Entries(field, rows) for field in self.array.flatten()]

    def elements(self) -> tuple[Entries, np.ndarray]:
        """Return the elements of lists, or the entries of maps as structs.

        Returns:
            (elements of all lists; int64[n + 1], the offsets of each list in them).
        """
        array = self.array
        if pa.types.is_map(array.type):  # Arrow flattens lists only
            entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
            bits, offsets = array.buffers()[:2]
            list_type = pa.list_(entries.type)
            array = pa.Array.from_buffers(
                list_type, len(array), [bits, offsets], offset=array.offset, children=[entries]
            )
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return Entries(array.flatten(), np.repeat(self.rows, sizes)), offsets

    def refuse(self, wrong: np.ndarray, target: str, path: str, problem: str) -> None:
        """Raise InvalidRecord for the first wrong entry that is not null and is written, if any.

        Args:
            wrong: bool[n].
            target: The schema with which the row is encoded, for the error.
            path: Path of the field, for the error.
            problem: What is wrong with the entry, for the error.
        """
        if wrong.any():
            valid = valid_of(self.array)
            self._refuse_first(wrong if valid is None else wrong & valid, target, path, problem)

    def refuse_nulls(self, target: str, path: str, problem: str) -> None:
        """Raise InvalidRecord for the first entry that is null and has to be written. Arguments as for `refuse`."""
        valid = valid_of(self.array)
        if valid is not None:
            self._refuse_first(~valid, target, path, problem)

    def _refuse_first(self, wrong: np.ndarray, target: str, path: str, problem: str) -> None:
        indexes = np.flatnonzero(wrong & (self.rows != NOT_WRITTEN))
        if len(indexes):
            raise InvalidRecord(f"row {self.rows[indexes[0]]} does not fit {target}: {path}: {problem}")

    def indexes_of(self, names: Sequence[str], target: str, path: str, problem: str) -> np.ndarray:
        """Return the index in `names` of each text, int64[n]; arbitrary for null.

        The other arguments are those of `refuse`.

        Raises:
            InvalidRecord: If a text is not one of `names`.
        """
        indexes = pc.index_in(self.array.cast(pa.string()), pa.array(names, pa.string()))
        self.refuse(indexes.is_null().to_numpy(zero_copy_only=False), target, path, problem)
        return whole_numbers(indexes)
