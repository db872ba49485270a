"""Entries of a column while rows are encoded, with the rows that they belong to, which errors name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.typed.pieces.pieces import elements, valid_of

NOWHERE = -1
"""The row of an entry that is not written, being inside of a null."""


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
        held, offsets = elements(self.array)
        return Entries(held, np.repeat(self.rows, np.diff(offsets))), offsets

    def refuse(self, wrong: np.ndarray | None, target: str, path: str, what: str) -> None:
        """Raises InvalidRecord for the first entry that is written and wrong, bool[n] (None: none is)."""
        if wrong is None:
            return
        found = np.flatnonzero(wrong & (self.rows != NOWHERE))
        if len(found):
            raise InvalidRecord(f"row {self.rows[found[0]]} does not fit {target}: {path}: {what}")

    def nulls(self) -> np.ndarray | None:
        """Which entries are null, bool[n]; None for none."""
        valid = valid_of(self.array)
        return None if valid is None else ~valid
