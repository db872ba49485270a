"""The fields of a value to a row by the rules of from_csv, in plain Python.

Follows Spark's UnivocityParser: a field that cannot be read as its type costs that field and makes the value bad, as
do fields too many or too few.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafkalog_spark.typed.civil import date_of_plain_text, date_of_text
from kafkalog_spark.typed.csv_options import CsvOptions
from kafkalog_spark.typed.csv_tokens import CsvTokens
from kafkalog_spark.typed.java_text import java_decoded
from kafkalog_spark.typed.json_scalars import BadField, decimal_of, local_timestamp_of, timestamp_of
from kafkalog_spark.typed.json_types import INTEGERS
from kafkalog_spark.typed.json_values import BadValue

_WRONG = (BadField, ValueError, ArithmeticError)
_INTEGER = re.compile(r"[+-]?[\d]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP]([+-]?[0-9]+)")
_BLANK = "".join(map(chr, range(33)))
MOST_COLUMNS = 20_480
"""Fields of a value that Spark's parser has room for (`maxColumns`)."""


class CsvRows:
    """Decodes texts one by one. columns: of the values, by place; wanted: names of those that are kept."""

    def __init__(self, columns: pa.Schema, wanted: set[str], options: CsvOptions) -> None:
        self._columns = len(columns)
        self._tokens = CsvTokens(options)
        self._null = options.null
        self._corrupt = options.civil.corrupt
        self._kept = [
            (place, field.name, converter_of(field.type, options))
            for place, field in enumerate(columns)
            if field.name in wanted
        ]

    def row(self, data: bytes) -> dict[str, Any]:
        """The fields by name, as pyarrow.array takes them. Raises BadValue, whose row has the corrupt record too."""
        try:
            fields = self._tokens.fields(java_decoded(data))
        except RecursionError:
            raise BadValue(None, "too many quotes that nothing escapes") from None
        if fields is None:
            raise BadValue({self._corrupt: self._tokens.seen}, "no line with fields in it")
        if len(fields) > MOST_COLUMNS:
            raise BadValue({self._corrupt: self._tokens.seen}, f"more than {MOST_COLUMNS:,} fields")
        why = None
        if len(fields) != self._columns:
            why = f"it has {len(fields)} fields, and the schema {self._columns}"
        row: dict[str, Any] = {}
        for place, name, convert in self._kept:
            if place >= len(fields) or fields[place] == self._null:
                continue
            try:
                row[name] = convert(fields[place])
            except _WRONG as error:
                why = why or f"{name}: {error}"
        if why is not None:
            row[self._corrupt] = self._tokens.seen
            raise BadValue(row, why)
        return row


def converter_of(kind: pa.DataType, options: CsvOptions) -> Callable[[str], Any]:
    """What reads a field that is not null; it raises BadField, ValueError or ArithmeticError for what is no `kind`."""
    civil = options.civil
    if kind in INTEGERS:
        lowest, highest = INTEGERS[kind]
        return lambda text: _integer(text, lowest, 127 if kind == pa.int8() else highest)
    if kind == pa.bool_():
        return _boolean
    if kind in (pa.float32(), pa.float64()):
        words = {
            options.infinity: float("inf"),
            options.minus_infinity: float("-inf"),
            options.nan: float("nan"),
        }
        return lambda text: words[text] if text in words else _floating(text, kind)
    if pa.types.is_decimal(kind):
        return lambda text: decimal_of(text.replace(",", ""), kind)
    if kind == pa.date32():
        return lambda text: _date(text, options)
    if kind == pa.timestamp("us"):
        return lambda text: local_timestamp_of(text, civil)
    if pa.types.is_timestamp(kind):
        return lambda text: timestamp_of(text, civil)
    return lambda text: text


def _integer(text: str, lowest: int, highest: int) -> int:
    if not _INTEGER.fullmatch(text) or max(text) > "\uffff" or len(text) > 4000:
        raise BadField("no whole number")
    number = int(text)
    if not lowest <= number <= highest:
        raise BadField(f"{text[:40]} is out of range")
    return number


def _boolean(text: str) -> bool:
    word = text.upper()
    if len(text) != len(word) or word not in ("TRUE", "FALSE"):
        raise BadField("neither true nor false")
    return word == "TRUE"


def _floating(text: str, kind: pa.DataType) -> Any:
    """As Java's parseDouble, or parseFloat: blanks around it, a letter for the type after it, hexadecimal ones."""
    number = text.strip(_BLANK)
    if number.lstrip("+-") in ("NaN", "Infinity") and len(number) - len(number.lstrip("+-")) < 2:
        return float(number.replace("Infinity", "inf").replace("NaN", "nan"))
    if number[-1:] in "fFdD":
        number = number[:-1]
    if found := _HEX.fullmatch(number):
        return _hexadecimal(found[1], found[2], found[3], kind)
    if not _FLOAT.fullmatch(number):
        raise BadField("no number")
    if kind == pa.float64():
        return float(number)
    return pa.scalar(number.lstrip("+")).cast(kind).as_py()


def _hexadecimal(sign: str, digits: str, power: str, kind: pa.DataType) -> float:
    """Rounded to a double; of a float only what a double holds exactly is rounded once."""
    try:
        number = float.fromhex(f"{sign}0x{digits}p{power}")
    except OverflowError:
        number = float(f"{sign}inf")
    return pa.scalar(number).cast(kind).as_py() if kind == pa.float32() else number


def _date(text: str, options: CsvOptions) -> int:
    """With a pattern what fits it; without one, or with the fallback, Spark's own forms."""
    civil = options.civil
    if civil.read_date is not None:
        try:
            return civil.read_date(text)[0]
        except ValueError:
            if not civil.fallback:
                raise
    elif civil.fallback is False:
        return date_of_plain_text(text)
    return date_of_text(text.replace("GMT", ""))
