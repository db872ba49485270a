"""What the CSV kernel has left in its buffers as Arrow columns: those of JSON, filled by another kernel."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.typed.columns.spare import SpareMemory
from kafkalog_spark.typed.csv_kernel import COMMENT, ESCAPE, FLOATS, NO_SIGN, QUOTE, SEPARATOR, SIGNS, decode_csv
from kafkalog_spark.typed.csv_options import CsvOptions
from kafkalog_spark.typed.json_columns import Decoding
from kafkalog_spark.typed.json_program import JsonProgram


class CsvDecoding(Decoding):
    """The values of one batch as the kernel decodes them. places: the node of each field of a value, 0 for one that is
    not wanted; options: which `is_plain`."""

    def __init__(
        self,
        program: JsonProgram,
        places: list[int],
        options: CsvOptions,
        spare: SpareMemory,
        data: np.ndarray,
        offsets: np.ndarray,
        present: np.ndarray,
    ) -> None:
        self._targets = np.array(places, np.int64)
        self._signs = np.full(SIGNS, NO_SIGN, np.int64)
        self._signs[SEPARATOR], self._signs[QUOTE] = ord(options.separator), ord(options.quote)
        self._signs[ESCAPE] = ord(options.escape)
        if options.comment is not None:
            self._signs[COMMENT] = ord(options.comment)
        words = (options.nan, options.infinity, options.minus_infinity)
        self._signs[FLOATS] = not any(word.lstrip("-")[:1].isdigit() for word in words)
        self._null = np.frombuffer(options.null.encode(), np.uint8)
        super().__init__(program, spare, data, offsets, present)

    def _decode(self, row: int, room: np.ndarray, state: np.ndarray, frames: np.ndarray, expected: np.ndarray) -> int:
        ended: int = decode_csv(
            self._data, self._offsets, self._present, row, self._nodes, self._targets, self._signs, self._null,
            self._words, self._valid, self._numbers, state, self._flags,
        )  # fmt: skip
        return ended
