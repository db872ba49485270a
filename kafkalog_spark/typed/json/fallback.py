"""Fallback of the JSON kernel: a JSON text to a row by the rules of from_json, in plain Python.

Follows Spark's JacksonParser (convertObject, convertArray, convertMap, parseJsonToken) and FailureSafeParser: which
errors cost a field, which the whole value, and what is left of the fields around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns import java_text, spark_times
from kafkalog_spark.typed.json.jackson import JacksonReader, JsonError, Token
from kafkalog_spark.typed.json.json_options import INTEGERS, JsonOptions

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
            return spark_times.us_in_range(spark_times.us_of_local(days, us, zone or options.zone))
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
        return spark_times.us_in_range(days * 86_400_000_000 + us)
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
        return spark_times.days_of_hybrid(days)


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


class BadValue(Exception):
    """A text, or an object or array in it, is bad. value: what could be read of it, None for nothing."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


_Fields = dict[str, tuple[str, Converter]]
"""By their names as Jackson gives them: the names of columns, and what converts their values."""
_WRONG = (JsonError, ValueError, ArithmeticError)
"""Exceptions of converters where Spark catches its own."""


class JsonRows:
    """Decodes texts one by one. `schema`: without the column of the corrupt record."""

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        """Raises OptionError for a type that JSON is not decoded to here, and for two fields of one name."""
        self._options = options
        self._fields = self._converters(schema, "")

    def row(self, data: bytes) -> dict[str, Any] | None:
        """Fields that are there, by name, as pyarrow.array takes them; None without a token. Raises BadValue."""
        reader = JacksonReader(java_text.java_units(java_text.java_decoded(data)), self._options)
        try:
            if reader.next_token() is None:
                return None
            if reader.token is Token.START_OBJECT:
                return self._object(reader, self._fields)
            raise ValueError(f"it begins with {reader.token.name}, not with an object" if reader.token else "")
        except _WRONG as error:
            raise BadValue(None, str(error) or type(error).__name__) from None

    def _object(self, reader: JacksonReader, fields: _Fields) -> dict[str, Any]:
        row: dict[str, Any] = {}
        why: str | None = None
        while _until(reader, Token.END_OBJECT):
            field = fields.get(reader.name or "")
            if field is None:
                reader.skip_children()
                continue
            name, convert = field
            try:
                row[name] = convert(reader)
            except BadValue as partial:
                why = why or str(partial)
                row[name] = partial.value
            except _WRONG as error:
                why = why or f"{name}: {error}"
                reader.skip_children()
        if why is not None:
            raise BadValue(row, why)
        return row

    def _array(self, reader: JacksonReader, convert: Converter) -> list[Any]:
        values, why = [], None
        while _until(reader, Token.END_ARRAY):
            try:
                values.append(convert(reader))
            except BadValue as partial:
                why = why or str(partial)
                values.append(partial.value)
        if why is not None:
            raise BadValue(values, why)
        return values

    def _map(self, reader: JacksonReader, convert: Converter) -> list[tuple[str, Any]]:
        pairs: list[tuple[str, Any]] = []
        partly: str | None = None
        bad: str | None = None
        while _until(reader, Token.END_OBJECT):
            key = java_text.java_characters(reader.name or "")
            try:
                pairs.append((key, convert(reader)))
            except BadValue as partial:
                partly = partly or str(partial)
                pairs.append((key, partial.value))
            except _WRONG as error:
                bad = bad or str(error)
                reader.skip_children()
        if bad is not None:
            raise ValueError(bad)
        if partly is not None:
            raise BadValue(pairs, partly)
        return pairs

    def _converters(self, fields: Iterable[pa.Field], path: str) -> _Fields:
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            what = f"column '{path}'" if path else "the schema"
            raise OptionError(f"{what} has two fields of one name: {', '.join(names)}")
        within = f"{path}." if path else ""
        return {
            java_text.java_units(field.name): (field.name, self._converter(field.type, within + field.name))
            for field in fields
        }

    def _converter(self, kind: pa.DataType, path: str) -> Converter:
        if pa.types.is_struct(kind):
            fields = self._converters(kind, path)
            return taking(kind, {Token.START_OBJECT: lambda reader: self._object(reader, fields)})
        if pa.types.is_map(kind):
            if kind.key_type != pa.string():
                raise OptionError(f"column '{path}': keys of a map in JSON are strings, not {kind.key_type}")
            convert = self._converter(kind.item_type, f"{path}.value")
            return taking(kind, {Token.START_OBJECT: lambda reader: self._map(reader, convert)})
        if pa.types.is_list(kind):
            convert = self._converter(kind.value_type, f"{path}.element")
            return taking(kind, {Token.START_ARRAY: lambda reader: self._array(reader, convert)})
        return scalar_converter(kind, self._options, path)


def _until(reader: JacksonReader, end: Token) -> bool:
    token = reader.next_token()
    return token is not None and token is not end
