"""Scalars."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns import gregorian, java_text, spark_times, time_zones
from kafkalog_spark.typed.json.jackson import JacksonReader, Token
from kafkalog_spark.typed.json.options import INTEGERS, JsonOptions

Converter = Callable[[JacksonReader], Any]
"""Takes the reader's value; raises JsonError, ValueError or ArithmeticError for one not of its type."""
_INFINITIES = {"+INF": 1.0, "+Infinity": 1.0, "Infinity": 1.0, "-INF": -1.0, "-Infinity": -1.0}
_NUMBERS = (Token.INTEGER, Token.FLOAT)
_MOST_DROPPED = 646_456_990
"""Digits that Java's BigDecimal can round away: its BigInteger has no larger power of ten."""
_DAYS = re.compile(r"([+-]?)0*(\d{1,10})")  # as Java's parseInt takes it, whatever the number of zeros
_WIDE = Context(prec=2000, Emax=999_999_999, Emin=-999_999_999)


def scalar_converter(kind: pa.DataType, options: JsonOptions, path: str) -> Converter:
    """Converter of a column's scalar type. Raises OptionError for a type that JSON is not decoded to here."""
    if kind in INTEGERS:
        lowest, highest = INTEGERS[kind]
        return taking(kind, {Token.INTEGER: lambda reader: _integer(reader, lowest, highest)})
    if kind == pa.bool_():
        return taking(kind, {Token.TRUE: lambda reader: True, Token.FALSE: lambda reader: False})
    if kind in (pa.float32(), pa.float64()):
        return _floating(kind, options)
    if pa.types.is_decimal128(kind):
        return taking(
            kind,
            dict.fromkeys(_NUMBERS, lambda reader: decimal_of(reader.number, kind))
            | {Token.STRING: _unless_empty(kind, lambda text: decimal_of(text.replace(",", ""), kind))},
        )
    if kind == pa.binary():
        return taking(kind, {Token.STRING: lambda reader: reader.binary()})
    if kind == pa.string():
        return _text
    if kind == pa.date32():
        return taking(kind, {Token.STRING: _unless_empty(kind, lambda text: _date(text, options))})
    if kind == pa.timestamp("us"):
        return taking(kind, {Token.STRING: _unless_empty(kind, lambda text: local_timestamp_of(text, options))})
    if kind != pa.timestamp("us", tz="UTC"):
        raise OptionError(f"column '{path}': the type {kind} is not decoded from JSON here")
    return taking(
        kind, {Token.STRING: _unless_empty(kind, lambda text: timestamp_of(text, options)), Token.INTEGER: _seconds}
    )


def _floating(kind: pa.DataType, options: JsonOptions) -> Converter:
    non_numeric = options.non_numeric

    def of_text(text: str) -> float:
        if non_numeric and text == "NaN":
            return float("nan")
        if non_numeric and text in _INFINITIES:
            return _INFINITIES[text] * float("inf")
        raise ValueError(f"a string cannot be read as {kind}")

    def of_number(reader: JacksonReader) -> float:
        text = reader.number
        if not text[-1].isdigit():
            return of_text(text)
        if reader.token is Token.INTEGER and text == "-0":
            return 0.0
        return pa.scalar(text).cast(kind).as_py() if kind == pa.float32() else float(text)

    return taking(kind, dict.fromkeys(_NUMBERS, of_number) | {Token.STRING: _unless_empty(kind, of_text)})


def timestamp_of(text: str, options: JsonOptions) -> int:
    if options.read_timestamp is not None:
        try:
            days, us, zone = options.read_timestamp(text)
            return gregorian.us_in_range(time_zones.us_of_local(days, us, zone or options.zone))
        except ValueError:
            if not options.fallback:
                raise
    else:
        try:
            return spark_times.timestamp_of_text(text, options.zone)
        except ValueError:
            if options.fallback is False:
                raise
    return spark_times.timestamp_of_text(text.replace("GMT", ""), options.zone)


def local_timestamp_of(text: str, options: JsonOptions) -> int:
    if options.read_local is not None:
        days, us, zone = options.read_local(text)
        if zone is not None:
            raise ValueError("a time zone where none is allowed")
        return gregorian.us_in_range(days * gregorian.DAY_US + us)
    return spark_times.timestamp_of_text(text, options.zone, with_zone=False)


def _date(text: str, options: JsonOptions) -> int:
    try:
        return options.read_date(text)[0] if options.read_date is not None else spark_times.date_of_text(text)
    except ValueError:
        if not options.fallback and (options.fallback is False or options.read_date is not None):
            raise
    try:
        return spark_times.date_of_text(text.replace("GMT", ""))
    except ValueError:
        number = _DAYS.fullmatch(text)  # days since 1970 by the calendar of Spark 1.5, Julian before 1582-10-15
        days = 1 << 31 if number is None else int(number[1] + number[2])
        if not -(1 << 31) <= days < 1 << 31:
            raise ValueError("no date") from None
        return gregorian.days_of_hybrid(days)


def taking(kind: pa.DataType, by_token: dict[Token, Converter]) -> Converter:
    """Spark's parseJsonToken: names are passed over, null is null, and a token that the type does not take is wrong."""

    def convert(reader: JacksonReader) -> Any:
        token = _value_token(reader)
        if token is None or token is Token.NULL:
            return None
        take = by_token.get(token)
        if take is not None:
            return take(reader)
        if token is Token.STRING:
            _refuse_empty(reader.string(), kind)
        raise ValueError(f"{token.name} cannot be read as {kind}")

    return convert


def _value_token(reader: JacksonReader) -> Token | None:
    while reader.token is Token.NAME:
        reader.next_token()
    return reader.token


def _refuse_empty(text: str, kind: pa.DataType) -> None:
    if not text:
        raise ValueError(f"an empty string cannot be read as {kind}")


def _unless_empty(kind: pa.DataType, read: Callable[[str], Any]) -> Converter:
    def convert(reader: JacksonReader) -> Any:
        text = reader.string()
        _refuse_empty(text, kind)
        return read(text)

    return convert


def _integer(reader: JacksonReader, lowest: int, highest: int) -> int:
    number = int(reader.number)
    if not lowest <= number <= highest:
        raise ValueError(f"{reader.number[:40]} is out of range")
    return number - 256 if highest == 255 and number > 127 else number


def _seconds(reader: JacksonReader) -> int:
    """Seconds as microseconds; like Java's product it may overflow."""
    return ((_integer(reader, -(1 << 63), (1 << 63) - 1) * 1_000_000 + (1 << 63)) % (1 << 64)) - (1 << 63)


def decimal_of(text: str, kind: pa.DataType) -> Decimal:
    try:
        number = Decimal(text)
        if not number.is_finite() or not text or text != text.strip() or "_" in text:
            raise ValueError("no decimal")
        if number and number.adjusted() > kind.precision:
            raise ValueError(f"it does not fit {kind}")
        if number and number.adjusted() < -_MOST_DROPPED:
            raise ValueError("its exponent is too small")
        if number.adjusted() < -kind.scale - 2:
            return Decimal(0).scaleb(-kind.scale)
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), rounding="ROUND_HALF_UP", context=_WIDE)
    except InvalidOperation:
        raise ValueError("no decimal") from None
    if len(rounded.as_tuple().digits) > kind.precision and rounded:
        raise ValueError(f"it does not fit {kind}")
    return rounded


def _text(reader: JacksonReader) -> str | None:
    """A string as it is; everything else as Jackson's generator writes it."""
    token = _value_token(reader)
    if token is None or token is Token.NULL:
        return None
    if token is Token.STRING:
        return java_text.java_characters(reader.string())
    if token in (Token.END_OBJECT, Token.END_ARRAY):
        raise ValueError("no value")
    parts: list[str] = []
    depth, comma = 0, False
    while True:
        if token in (Token.END_OBJECT, Token.END_ARRAY):
            depth -= 1
            parts.append("}" if token is Token.END_OBJECT else "]")
            comma = True
        else:
            if comma:
                parts.append(",")
            if token is Token.NAME:
                parts.append(f"{java_text.json_quoted(reader.name or '')}:")
                comma = False
            elif token in (Token.START_OBJECT, Token.START_ARRAY):
                depth += 1
                parts.append("{" if token is Token.START_OBJECT else "[")
                comma = False
            else:
                parts.append(_written(reader))
                comma = True
        if not depth:
            return "".join(parts)
        token = reader.next_token()
        if token is None:
            raise ValueError("unexpected end-of-input")


def _written(reader: JacksonReader) -> str:
    token = reader.token
    if token is Token.STRING:
        return java_text.json_quoted(reader.string())
    if token is Token.INTEGER:
        return "0" if reader.number == "-0" else reader.number
    if token is Token.FLOAT:
        text = reader.number
        number = float(text) if text[-1].isdigit() else _INFINITIES.get(text, float("nan")) * float("inf")
        written = java_text.double_text(number)
        return written if written[-1].isdigit() else f'"{written}"'
    assert token is not None
    return str(token.value)
