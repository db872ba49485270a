"""Texts as Java reads and writes them, where that is not as Python does."""

from __future__ import annotations

import codecs
import re
from decimal import Context, Decimal

import pyarrow as pa

_ENCODED_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def _malformed(error: UnicodeError) -> tuple[str, int]:
    """Java replaces an encoded surrogate (ED A0 80, or ED A0 at the end) by one character, Python each of its bytes."""
    assert isinstance(error, UnicodeDecodeError)
    surrogate = _ENCODED_SURROGATE.match(error.object, error.start)
    return "�", error.end if surrogate is None else surrogate.end()


codecs.register_error("kafkalog-java", _malformed)


def java_decoded(data: bytes) -> str:
    """UTF-8 as java.io.InputStreamReader reads it: what is malformed becomes U+FFFD."""
    return data.decode("utf-8", "kafkalog-java")


def well_formed(texts: pa.Array) -> pa.Array:
    """The texts with what is not UTF-8 replaced, as by UTF8String.toString; the array itself where nothing is."""
    plain = pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()
    as_bytes = pa.Array.from_buffers(plain, len(texts), texts.buffers(), offset=texts.offset)
    try:
        as_bytes.cast(texts.type)
    except pa.ArrowInvalid:
        return pa.array([None if one is None else java_decoded(one) for one in as_bytes.to_pylist()], texts.type)
    return texts


def java_units(text: str) -> str:
    """A text as Java's chars: each character beyond the BMP is two surrogates."""
    return text if text.isascii() else _BEYOND_BMP.sub(lambda found: "".join(map(chr, _units(found[0]))), text)


def java_characters(text: str) -> str:
    """Java's chars as getBytes(UTF_8) writes them: surrogate pairs as characters, single ones as question marks."""

    def one(found: re.Match[str]) -> str:
        pair = found[0]
        if len(pair) == 1:
            return "?"
        return chr(0x10000 + ((ord(pair[0]) - 0xD800) << 10) + ord(pair[1]) - 0xDC00)

    return _SURROGATES.sub(one, text)


_ESCAPES = {ord(c): f"\\{e}" for c, e in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)}
_ESCAPES |= {code: f"\\u{code:04X}" for code in range(32) if code not in _ESCAPES}
_BEYOND_BMP = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")


def json_quoted(text: str) -> str:
    """A text in quotes, as Jackson's UTF8JsonGenerator writes it: surrogates, of whole pairs too, as escapes."""
    text = text.translate(_ESCAPES)
    return f'"{text if text.isascii() else _BEYOND_BMP.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\u{unit:04X}" for unit in _units(found[0]))


def _units(character: str) -> tuple[int, ...]:
    code = ord(character)
    return (code,) if code < 0x10000 else (0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))


_DIGITS = Context(prec=17, traps=[])  # those of any double; a thread's own context may round to fewer


def double_text(number: float) -> str:
    """Double.toString, of Java 19 and later: the shortest digits that are this number and no other, two at least."""
    if number != number:
        return "NaN"
    shortest = repr(number)
    if "inf" in shortest:
        return shortest.replace("inf", "Infinity")
    if "e-3" in shortest:  # only the smallest numbers leave a choice: 4.9E-324 where Python has 5e-324
        two_digits = f"{number:.1e}"
        shortest = two_digits if float(two_digits) == number else shortest
    if not number:
        return shortest
    mantissa, _, exponent = f"{Decimal(shortest).normalize(_DIGITS):e}".partition("e")
    sign, digits = "-" * (number < 0), mantissa.lstrip("-").replace(".", "")
    point = int(exponent) + 1  # digits before it
    if -3 < point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        whole, part = digits[:point].ljust(point, "0"), digits[point:]
        return f"{sign}{whole}.{part or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
