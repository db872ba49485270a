"""Columns of floating-point numbers as Java writes them: the digits here, their forms in java_number_kernel.py."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed import java_number_kernel as kernel
from kafkalog_spark.typed.java_text import double_text, float_text
from kafkalog_spark.typed.pieces.pieces import Pieces

_FEW_DIGITS = {pa.float64(): 1e-300, pa.float32(): 1e-40}
"""Below, two digits may be written where one is enough (4.9E-324): Java takes the nearest of two at least."""


def java_numbers(column: pa.Array, quoted: bool) -> Pieces:
    """Double.toString or Float.toString of float64 and float32; any for null. quoted: whether NaN and infinities
    are in quotes, as Jackson writes them."""
    single = pa.types.is_float32(column.type)
    values = pc.fill_null(column, 1).to_numpy(zero_copy_only=False)
    doubles = np.ascontiguousarray(values, np.float64)
    digits, exponents = np.empty(len(values), np.uint64), np.empty(len(values), np.int32)
    if kernel.short_decimals(doubles, single, digits, exponents):
        left = np.flatnonzero(exponents == kernel.NO_DIGITS)
        some = values[left]
        texts = pa.array(some).cast(pa.string())
        tiny = np.abs(some) < _FEW_DIGITS[column.type]
        if tiny.any():
            found = texts.to_pylist()
            for i in np.flatnonzero(tiny):
                found[i] = float_text(some[i]) if single else double_text(float(some[i]))
            texts = pa.array(found, pa.string())
        pieces = Pieces.of(texts)
        kernel.decimals_of_texts(pieces.data, pieces.offsets, left, digits, exponents)
    made = Pieces.up_to(len(values), kernel.MAX_NUMBER)
    kernel.write_decimals(doubles, digits, exponents, quoted, made.data, made.offsets)
    return made
