"""Conversions of text and numbers whose result in Java differs from that in Python."""

from __future__ import annotations

import codecs
import re
from decimal import Context, Decimal

import pyarrow as pa

_ENCODED_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_BEYOND_BMP = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
_ESCAPES = {ord(character): f"\\{letter}" for character, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)}
_ESCAPES |= {code: f"\\u{code:04X}" for code in range(32) if code not in _ESCAPES}
_DIGITS = Context(prec=17, traps=[])  # enough digits for any double; the thread's context may have fewer


def java_decoded(data: bytes) -> str:
    """Decode UTF-8 like java.io.InputStreamReader, which replaces malformed bytes by U+FFFD."""
    return data.decode("utf-8", "kafkalog-java")


def well_formed(texts: pa.Array) -> pa.Array:
    """Return a string array in which bytes that are not UTF-8 are replaced as in `UTF8String.toString`.

    The array itself is returned if all its bytes are UTF-8.
    """
    plain = pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()
    as_bytes = pa.Array.from_buffers(plain, len(texts), texts.buffers(), offset=texts.offset)
    try:
        as_bytes.cast(texts.type)
    except pa.ArrowInvalid:
        return pa.array([None if text is None else java_decoded(text) for text in as_bytes.to_pylist()], texts.type)
    return texts


def java_units(text: str) -> str:
    """Return a text with each character beyond the BMP as two surrogates, like Java's chars."""
    return text if text.isascii() else _BEYOND_BMP.sub(lambda match: "".join(map(chr, _units(match[0]))), text)


def java_characters(text: str) -> str:
    """Invert `java_units`; a surrogate without its partner becomes a question mark, as in `getBytes(UTF_8)`."""

    def join_pair(match: re.Match[str]) -> str:
        pair = match[0]
        if len(pair) == 1:
            return "?"
        return chr(0x10000 + ((ord(pair[0]) - 0xD800) << 10) + ord(pair[1]) - 0xDC00)

    return _SURROGATES.sub(join_pair, text)


def quote_json(text: str) -> str:
    """Return a text as a JSON string like Jackson's UTF8JsonGenerator, which escapes all surrogates, even in pairs."""
    text = text.translate(_ESCAPES)
    return f'"{text if text.isascii() else _BEYOND_BMP.sub(_escape_units, text)}"'


def double_text(number: float) -> str:
    """Return the result of Double.toString in Java 19: the fewest digits that identify the number, but at least two."""
    if number != number:
        return "NaN"
    shortest = repr(number)
    if "inf" in shortest:
        return shortest.replace("inf", "Infinity")
    if "e-3" in shortest:  # with two digits the smallest numbers have several forms: Java 4.9E-324, Python 5e-324
        two_digits = f"{number:.1e}"
        shortest = two_digits if float(two_digits) == number else shortest
    if not number:
        return shortest
    mantissa, _, exponent = f"{Decimal(shortest).normalize(_DIGITS):e}".partition("e")
    sign, digits = "-" * (number < 0), mantissa.lstrip("-").replace(".", "")
    point = int(exponent) + 1  # number of digits before the decimal point
    if -3 < point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        whole, part = digits[:point].ljust(point, "0"), digits[point:]
        return f"{sign}{whole}.{part or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _replace_malformed(error: UnicodeError) -> tuple[str, int]:
    """Replace an encoded surrogate (ED A0 80, or ED A0 at the end) by one U+FFFD; Python would replace each byte."""
    assert isinstance(error, UnicodeDecodeError)
    surrogate = _ENCODED_SURROGATE.match(error.object, error.start)
    return "�", error.end if surrogate is None else surrogate.end()


codecs.register_error("kafkalog-java", _replace_malformed)


def _escape_units(match: re.Match[str]) -> str:
    return "".join(f"\\u{unit:04X}" for unit in _units(match[0]))


def _units(character: str) -> tuple[int, ...]:
    code = ord(character)
    return (code,) if code < 0x10000 else (0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))
