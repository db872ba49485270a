"""Names of objects: the field of a name, and names that are expected where they were in the last object."""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.log.kernels.primitives import load_u64
from kafkalog_spark.typed.json_fields import (
    EXPECTED_WIDTH,
    F_AT,
    F_LENGTH,
    F_NODE,
    F_WORD,
    LONGEST_EXPECTED,
    MASK_1,
    MASK_2,
    NAME_BASE,
    NAME_KIND,
    NAME_LENGTH,
    NAME_NODE,
    WORD_1,
    WORD_2,
)
from kafkalog_spark.typed.json_program import HASH
from kafkalog_spark.typed.json_text_kernel import HIGHS


@njit
def _word_of(data, at, length, end):  # type: ignore[no-untyped-def]
    """The first eight bytes of a name, the first one lowest."""
    if at + 8 <= end:
        word = load_u64(data, at)
        return word if length >= 8 else word & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
    word = np.uint64(0)
    for i in range(min(length, 8)):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@njit
def field_of(data, at, length, end, first, bits, fields, names):  # type: ignore[no-untyped-def]
    """The node of a name in a struct's hash table, 0 for a name that is not wanted."""
    word = _word_of(data, at, length, end)
    place = np.int64(((word ^ (np.uint64(length) << np.uint64(56))) * HASH) >> np.uint64(64 - bits))
    mask = (np.int64(1) << bits) - 1
    while True:
        row = first + place
        node = fields[row, F_NODE]
        if node == 0:
            return np.int64(0)
        if fields[row, F_LENGTH] == length and np.uint64(fields[row, F_WORD]) == word:
            begin = fields[row, F_AT]
            same = True
            for i in range(8, length):
                if names[begin + i] != data[at + i]:
                    same = False
                    break
            if same:
                return node
        place = (place + 1) & mask


@njit(inline="always")
def is_expected(data, at, end, expected, row):  # type: ignore[no-untyped-def]
    """Whether data[at:end] is the name that is expected, the quote after it, and more. row: where its row begins."""
    length = expected[row + NAME_LENGTH]
    if length == 0 or at + length + 1 >= end or at + LONGEST_EXPECTED + 1 > len(data):
        return False
    if (load_u64(data, at) ^ np.uint64(expected[row + WORD_1])) & np.uint64(expected[row + MASK_1]) != 0:
        return False
    return length < 8 or (
        (load_u64(data, at + 8) ^ np.uint64(expected[row + WORD_2])) & np.uint64(expected[row + MASK_2]) == 0
    )


@njit(inline="always")
def row_of(known):  # type: ignore[no-untyped-def]
    """Where the row of an expected name begins: a uint64, which Numba takes as an index without a question."""
    return np.uint64(known * EXPECTED_WIDTH)


@njit
def _mask(count):  # type: ignore[no-untyped-def]
    """That many bytes of a word, as a mask."""
    if count <= 0:
        return np.int64(0)
    return np.int64(-1) if count >= 8 else (np.int64(1) << (8 * count)) - 1


@njit
def expect(data, at, length, target, kind, base, expected, row):  # type: ignore[no-untyped-def]
    """Expect this name next time, if it is short enough, and ASCII, so that nothing has to be looked at again."""
    expected[row + NAME_LENGTH] = 0
    if length == 0 or length > LONGEST_EXPECTED or at + LONGEST_EXPECTED + 1 > len(data):
        return
    first, second = load_u64(data, at), load_u64(data, at + 8)
    one, two = _mask(length + 1), _mask(length - 7)
    if (first & np.uint64(one) & HIGHS) != 0 or (second & np.uint64(two) & HIGHS) != 0:
        return
    expected[row + WORD_1], expected[row + MASK_1] = np.int64(first), one
    expected[row + WORD_2], expected[row + MASK_2] = np.int64(second), two
    expected[row + NAME_LENGTH], expected[row + NAME_NODE] = length, target
    expected[row + NAME_KIND], expected[row + NAME_BASE] = kind, base
