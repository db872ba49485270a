"""Entries of a column while rows are encoded, with the rows that they belong to, which errors name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.typed.columns.byte_slices import valid_of
from kafkalog_spark.typed.columns.number_slices import whole_numbers

NOWHERE = -1  # the row of an entry that is not written, being inside of a null


class Entries(NamedTuple):
    """array: n entries; rows int64[n]: which row each is of, or NOWHERE."""

    array: pa.Array
    rows: np.ndarray

    @classmethod
    def of(cls, columns: pa.StructArray) -> Entries:
        """Rows as they are given to an encoder: a null one is a null value, of which nothing is written."""
        rows, valid = np.arange(len(columns)), valid_of(columns)
        return cls(columns, rows if valid is None else np.where(valid, rows, NOWHERE))

    def fields(self) -> list[Entries]:
        """Those of each field of a struct; what is inside of a null is null."""
        valid = valid_of(self.array)
        rows = self.rows if valid is None else np.where(valid, self.rows, NOWHERE)
        return [Entries(one, rows) for one in self.array.flatten()]

    def elements(self) -> tuple[Entries, np.ndarray]:
        """(The elements of all lists, or the entries of maps as structs; where those of each begin, int64[n + 1])."""
        array = self.array
        if pa.types.is_map(array.type):  # Arrow flattens lists only
            entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
            bits, offsets = array.buffers()[:2]
            kind = pa.list_(entries.type)
            array = pa.Array.from_buffers(kind, len(array), [bits, offsets], offset=array.offset, children=[entries])
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return Entries(array.flatten(), np.repeat(self.rows, sizes)), offsets

    def refuse(self, wrong: np.ndarray, target: str, path: str, what: str) -> None:
        """Raises InvalidRecord for the first entry that is there, written and wrong, bool[n]."""
        if wrong.any():
            valid = valid_of(self.array)
            self._refuse_first(wrong if valid is None else wrong & valid, target, path, what)

    def refuse_nulls(self, target: str, path: str, what: str) -> None:
        """Raises InvalidRecord for the first entry that is null where something is to be written."""
        valid = valid_of(self.array)
        if valid is not None:
            self._refuse_first(~valid, target, path, what)

    def _refuse_first(self, wrong: np.ndarray, target: str, path: str, what: str) -> None:
        found = np.flatnonzero(wrong & (self.rows != NOWHERE))
        if len(found):
            raise InvalidRecord(f"row {self.rows[found[0]]} does not fit {target}: {path}: {what}")

    def places(self, names: Sequence[str], target: str, path: str, what: str) -> np.ndarray:
        """Which of some names each text is, int64[n]; any for null. Raises InvalidRecord for a text that is none."""
        found = pc.index_in(self.array.cast(pa.string()), pa.array(names, pa.string()))
        self.refuse(found.is_null().to_numpy(zero_copy_only=False), target, path, what)
        return whole_numbers(found)
