"""Rows to CSV, as Spark's to_csv writes them (UnivocityGenerator), a column at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed import csv_writing_kernel as kernel
from kafkalog_spark.typed.csv_options import NONE, csv_options
from kafkalog_spark.typed.csv_writing_kernel import Form, Sign
from kafkalog_spark.typed.json_options import GivenTexts, check_no_patterns
from kafkalog_spark.typed.json_types import check_written_types
from kafkalog_spark.typed.pieces.pieces import Part, Pieces, as_values, joined, room, valid_of
from kafkalog_spark.typed.pieces.texts import is_binary, is_text, well_formed
from kafkalog_spark.typed.scalar_texts import scalar_texts

_NO_MASK = np.empty(0, np.bool_)
_WHITE = "".join(map(chr, range(33)))
"""What is trimmed: everything up to the space."""


@dataclass(frozen=True)
class CsvWriting:
    """Options of to_csv, parsed. signs: int64[len(Sign)]; in the first column a comment's sign is one of them. null,
    empty: as fields."""

    signs_of_first: np.ndarray
    signs: np.ndarray
    separator: bytes
    null: bytes
    empty: bytes
    zone: tzinfo


def csv_writing(options: Mapping[str, str]) -> CsvWriting:
    """Names in small letters. Raises OptionError for a value that cannot be used, and for what is refused."""
    read, given = csv_options(options), GivenTexts(options)
    check_no_patterns(read.civil)
    if NONE in (read.quote, read.escape):
        raise OptionError("options 'quote' and 'escape' are not empty on a write: Spark writes U+0000 then")
    comment = read.comment or "#"  # the library's own, which Spark leaves where no option says one
    if not (read.separator + read.quote + read.escape + read.escape_of_escape + comment).isascii():
        raise OptionError("options 'sep', 'quote', 'escape' and 'comment' are ASCII on a write")
    signs = np.zeros(len(Sign), np.int64)
    signs[Sign.SEPARATOR], signs[Sign.QUOTE], signs[Sign.ESCAPE] = map(ord, (read.separator, read.quote, read.escape))
    signs[Sign.OF_ESCAPE] = kernel.NO_SIGN if read.escape_of_escape == NONE else ord(read.escape_of_escape)
    signs[Sign.COMMENT] = ord(comment)
    signs[Sign.QUOTE_ALL] = given.truth("quoteAll", default=False)
    signs[Sign.ESCAPE_QUOTES] = given.truth("escapeQuotes", default=True)
    signs[Sign.TRIM_BEFORE] = given.truth("ignoreLeadingWhiteSpace", default=True)
    signs[Sign.TRIM_AFTER] = given.truth("ignoreTrailingWhiteSpace", default=True)
    first, signs = signs, signs.copy()
    signs[Sign.COMMENT] = kernel.NO_SIGN
    null, empty = (_constant(options.get(*one), signs) for one in (("nullvalue", ""), ("emptyvalue", '""')))
    return CsvWriting(first, signs, read.separator.encode(), null, empty, read.civil.zone)


def _constant(text: str, signs: np.ndarray) -> bytes:
    """The field of null or of an empty text: one that is in quotes already is taken as it is."""
    quote = chr(signs[Sign.QUOTE])
    if signs[Sign.TRIM_BEFORE]:
        text = text.lstrip(_WHITE)
    if signs[Sign.TRIM_AFTER]:
        text = text.rstrip(_WHITE)
    if len(text) > 1 and text[0] == text[-1] == quote:
        return text.encode()
    if not text:
        return (quote * 2).encode() if signs[Sign.QUOTE_ALL] else b""
    return _fields(Pieces.of(pa.array([text])), None, signs, b"", b"").data.tobytes()


class CsvEncoder:
    """Encodes rows as lines without an end. A row of which nothing is left is null, as to_csv has it. Raises
    OptionError for a type that CSV has no place for."""

    def __init__(self, given: pa.Schema, options: CsvWriting) -> None:
        check_written_types(given)
        for field in given:
            if pa.types.is_nested(field.type) or is_binary(field.type):
                raise OptionError(f"column '{field.name}': the type {field.type} is not written as CSV")
        self._options = options

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode. Raises InvalidRecord."""
        options, parts = self._options, []
        for i, column in enumerate(columns.flatten()):
            signs = options.signs if i else options.signs_of_first
            fields = _fields(_texts(column, options.zone), valid_of(column), signs, options.null, options.empty)
            parts.append(Part(fields, options.separator if i else b""))
        lines, valid = joined(parts), valid_of(columns)
        some = lines.sizes() > 0
        there = some if valid is None else some & valid
        return as_values([Part(lines)], b"", None if there.all() else there)


def _texts(column: pa.Array, zone: tzinfo) -> Pieces:
    return Pieces.of(well_formed(column)) if is_text(column.type) else scalar_texts(column, zone, quoted=False)


def _fields(pieces: Pieces, valid: np.ndarray | None, signs: np.ndarray, null: bytes, empty: bytes) -> Pieces:
    """Texts as fields; valid bool[n]: which are there, None: all."""
    n = len(pieces)
    forms, sizes = np.empty(n, np.int8), np.empty(n, np.int64)
    begins, ends = np.zeros(n, np.int64), np.zeros(n, np.int64)
    mask = _NO_MASK if valid is None else valid
    kernel.measure_fields(pieces.data, pieces.offsets, mask, signs, forms, begins, ends, sizes)
    sizes[forms == Form.NULL] = len(null)
    sizes[forms == Form.EMPTY] = len(empty)
    made = room(sizes)
    texts = np.frombuffer(null, np.uint8), np.frombuffer(empty, np.uint8)
    kernel.write_fields(pieces.data, forms, begins, ends, signs, *texts, made.data, made.offsets)
    return made
