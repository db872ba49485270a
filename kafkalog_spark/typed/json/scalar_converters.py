"""Converts JSON tokens to values of one column type, by the rules of from_json (JacksonParser.makeConverter)."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns import gregorian, java_text, spark_times, time_zones
from kafkalog_spark.typed.json.jackson import JacksonReader, Token
from kafkalog_spark.typed.json.options import JsonOptions

_INTEGER_RANGES = {
    pa.int8(): (-128, 255),  # as in Jackson, numbers above 127 become negative
    pa.int16(): (-(1 << 15), (1 << 15) - 1),
    pa.int32(): (-(1 << 31), (1 << 31) - 1),
    pa.int64(): (-(1 << 63), (1 << 63) - 1),
}
_INFINITIES = {"+INF": 1.0, "+Infinity": 1.0, "Infinity": 1.0, "-INF": -1.0, "-Infinity": -1.0}
_NUMBERS = (Token.INTEGER, Token.FLOAT)
_MAX_DROPPED_DIGITS = 646_456_990
"""Maximum number of digits that Java's BigDecimal can remove when it rounds: BigInteger has no larger power of ten."""
_DAY_NUMBER = re.compile(r"([+-]?)0*(\d{1,10})")  # what Java's parseInt accepts
_WIDE_CONTEXT = Context(prec=2000, Emax=999_999_999, Emin=-999_999_999)
Converter = Callable[[JacksonReader], Any]
"""Function that reads the value at the reader's current token and returns it for pyarrow. It raises JsonError,
ValueError or ArithmeticError if the value cannot be read as the type of the column."""


def scalar_converter(type_: pa.DataType, options: JsonOptions, path: str) -> Converter:
    """Return the converter of a type that is not nested.

    Args:
        type_: Type of the column.
        options: Options of from_json.
        path: Path of the column, for errors.

    Raises:
        OptionError: If JSON cannot be decoded to the type.
    """
    if type_ in _INTEGER_RANGES:
        lowest, highest = _INTEGER_RANGES[type_]
        return token_converter(type_, {Token.INTEGER: lambda reader: _read_integer(reader, lowest, highest)})
    if type_ == pa.bool_():
        return token_converter(type_, {Token.TRUE: lambda reader: True, Token.FALSE: lambda reader: False})
    if type_ in (pa.float32(), pa.float64()):
        return _floating_converter(type_, options)
    if pa.types.is_decimal128(type_):
        return token_converter(
            type_,
            dict.fromkeys(_NUMBERS, lambda reader: _parse_decimal(reader.number, type_))
            | {
                Token.STRING: _nonempty_string_converter(
                    type_, lambda text: _parse_decimal(text.replace(",", ""), type_)
                )
            },
        )
    if type_ == pa.binary():
        return token_converter(type_, {Token.STRING: lambda reader: reader.binary()})
    if type_ == pa.string():
        return _read_text
    if type_ == pa.date32():
        return token_converter(
            type_, {Token.STRING: _nonempty_string_converter(type_, lambda text: _parse_date(text, options))}
        )
    if type_ == pa.timestamp("us"):
        return token_converter(
            type_, {Token.STRING: _nonempty_string_converter(type_, lambda text: _parse_local_timestamp(text, options))}
        )
    if type_ != pa.timestamp("us", tz="UTC"):
        raise OptionError(f"column '{path}': JSON cannot be decoded to the type {type_}")
    return token_converter(
        type_,
        {
            Token.STRING: _nonempty_string_converter(type_, lambda text: _parse_timestamp(text, options)),
            Token.INTEGER: _read_seconds,
        },
    )


def token_converter(type_: pa.DataType, by_token: dict[Token, Converter]) -> Converter:
    """Return a converter that delegates to the converter of the current token, like Spark's parseJsonToken.

    It skips names, and returns None for null.

    Args:
        type_: Type of the column, for errors.
        by_token: Converters of the tokens that the type accepts. Any other token raises ValueError.
    """

    def convert(reader: JacksonReader) -> Any:
        token = _skip_names(reader)
        if token is None or token is Token.NULL:
            return None
        convert_token = by_token.get(token)
        if convert_token is not None:
            return convert_token(reader)
        if token is Token.STRING:
            _refuse_empty(reader.string(), type_)
        raise ValueError(f"{token.name} cannot be read as {type_}")

    return convert


def _floating_converter(type_: pa.DataType, options: JsonOptions) -> Converter:
    non_numeric = options.non_numeric

    def parse_text(text: str) -> float:
        if non_numeric and text == "NaN":
            return float("nan")
        if non_numeric and text in _INFINITIES:
            return _INFINITIES[text] * float("inf")
        raise ValueError(f"a string cannot be read as {type_}")

    def read_number(reader: JacksonReader) -> float:
        text = reader.number
        if not text[-1].isdigit():
            return parse_text(text)
        if reader.token is Token.INTEGER and text == "-0":
            return 0.0
        return pa.scalar(text).cast(type_).as_py() if type_ == pa.float32() else float(text)

    return token_converter(
        type_, dict.fromkeys(_NUMBERS, read_number) | {Token.STRING: _nonempty_string_converter(type_, parse_text)}
    )


def _parse_timestamp(text: str, options: JsonOptions) -> int:
    if options.read_timestamp is not None:
        try:
            days, us, zone = options.read_timestamp(text)
            return gregorian.checked_us(time_zones.us_of_local(days, us, zone or options.zone))
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


def _parse_local_timestamp(text: str, options: JsonOptions) -> int:
    if options.read_local is not None:
        days, us, zone = options.read_local(text)
        if zone is not None:
            raise ValueError("a time zone where none is allowed")
        return gregorian.checked_us(days * gregorian.DAY_US + us)
    return spark_times.timestamp_of_text(text, options.zone, with_zone=False)


def _parse_date(text: str, options: JsonOptions) -> int:
    try:
        return options.read_date(text)[0] if options.read_date is not None else spark_times.date_of_text(text)
    except ValueError:
        if not options.fallback and (options.fallback is False or options.read_date is not None):
            raise
    try:
        return spark_times.date_of_text(text.replace("GMT", ""))
    except ValueError:
        number = _DAY_NUMBER.fullmatch(text)  # Spark 1.5 wrote days since 1970, Julian before 1582-10-15
        days = 1 << 31 if number is None else int(number[1] + number[2])
        if not -(1 << 31) <= days < 1 << 31:
            raise ValueError("it is not a date") from None
        return gregorian.gregorian_days_of_hybrid_days(days)


def _skip_names(reader: JacksonReader) -> Token | None:
    while reader.token is Token.NAME:
        reader.next_token()
    return reader.token


def _refuse_empty(text: str, type_: pa.DataType) -> None:
    if not text:
        raise ValueError(f"an empty string cannot be read as {type_}")


def _nonempty_string_converter(type_: pa.DataType, read: Callable[[str], Any]) -> Converter:
    def convert(reader: JacksonReader) -> Any:
        text = reader.string()
        _refuse_empty(text, type_)
        return read(text)

    return convert


def _read_integer(reader: JacksonReader, lowest: int, highest: int) -> int:
    number = int(reader.number)
    if not lowest <= number <= highest:
        raise ValueError(f"{reader.number[:40]} is out of range")
    return number - 256 if highest == 255 and number > 127 else number


def _read_seconds(reader: JacksonReader) -> int:
    """Convert seconds to microseconds, which overflow like a Java long."""
    return ((_read_integer(reader, -(1 << 63), (1 << 63) - 1) * 1_000_000 + (1 << 63)) % (1 << 64)) - (1 << 63)


def _parse_decimal(text: str, type_: pa.DataType) -> Decimal:
    try:
        number = Decimal(text)
        if not number.is_finite() or not text or text != text.strip() or "_" in text:
            raise ValueError("it is not a decimal number")
        if number and number.adjusted() > type_.precision:
            raise ValueError(f"it does not fit {type_}")
        if number and number.adjusted() < -_MAX_DROPPED_DIGITS:
            raise ValueError("its exponent is too small")
        if number.adjusted() < -type_.scale - 2:
            return Decimal(0).scaleb(-type_.scale)
        rounded = number.quantize(Decimal(1).scaleb(-type_.scale), rounding="ROUND_HALF_UP", context=_WIDE_CONTEXT)
    except InvalidOperation:
        raise ValueError("it is not a decimal number") from None
    if len(rounded.as_tuple().digits) > type_.precision and rounded:
        raise ValueError(f"it does not fit {type_}")
    return rounded


def _read_text(reader: JacksonReader) -> str | None:
    """Return a string unchanged, and any other value as Jackson's generator writes it."""
    token = _skip_names(reader)
    if token is None or token is Token.NULL:
        return None
    if token is Token.STRING:
        return java_text.java_characters(reader.string())
    if token in (Token.END_OBJECT, Token.END_ARRAY):
        raise ValueError("there is no value")
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
                parts.append(f"{java_text.quote_json(reader.name or '')}:")
                comma = False
            elif token in (Token.START_OBJECT, Token.START_ARRAY):
                depth += 1
                parts.append("{" if token is Token.START_OBJECT else "[")
                comma = False
            else:
                parts.append(_scalar_as_json(reader))
                comma = True
        if not depth:
            return "".join(parts)
        token = reader.next_token()
        if token is None:
            raise ValueError("unexpected end-of-input")


def _scalar_as_json(reader: JacksonReader) -> str:
    token = reader.token
    if token is Token.STRING:
        return java_text.quote_json(reader.string())
    if token is Token.INTEGER:
        return "0" if reader.number == "-0" else reader.number
    if token is Token.FLOAT:
        text = reader.number
        number = float(text) if text[-1].isdigit() else _INFINITIES.get(text, float("nan")) * float("inf")
        written = java_text.double_text(number)
        return written if written[-1].isdigit() else f'"{written}"'
    assert token is not None
    return str(token.value)
