"""Indexes of the symbols of an enum in a column that is being encoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.columns.entries import Entries
from kafkalog_spark.typed.columns.number_slices import whole_numbers


def enum_indexes(entries: Entries, names: Sequence[str], schema_name: str, path: str, problem: str) -> np.ndarray:
    """Return the index in `names` of each text, int64[n]; arbitrary for null.

    The other arguments are those of `Entries.refuse_where`.

    Raises:
        InvalidRecord: If a text is not one of `names`.
    """
    indexes = pc.index_in(entries.array.cast(pa.string()), pa.array(names, pa.string()))
    entries.refuse_where(indexes.is_null().to_numpy(zero_copy_only=False), schema_name, path, problem)
    return whole_numbers(indexes)
