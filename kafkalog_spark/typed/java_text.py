"""Texts as Java reads and writes them, where that is not as Python does."""

from __future__ import annotations

import codecs
import re

_ENCODED_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def _malformed(error: UnicodeError) -> tuple[str, int]:
    """Java replaces the bytes of an encoded surrogate (ED A0 80), also where the last one is missing, by one character,
    Python each of them."""
    assert isinstance(error, UnicodeDecodeError)
    surrogate = _ENCODED_SURROGATE.match(error.object, error.start)
    return "�", error.end if surrogate is None else surrogate.end()


codecs.register_error("kafkalog-java", _malformed)


def java_decoded(data: bytes) -> str:
    """UTF-8 as java.io.InputStreamReader reads it: what is malformed becomes U+FFFD."""
    return data.decode("utf-8", "kafkalog-java")


def java_units(text: str) -> str:
    """A text as Java's chars: each character beyond the BMP is two surrogates."""
    return text if text.isascii() else _BEYOND_BMP.sub(lambda found: "".join(map(chr, _units(found[0]))), text)


def java_characters(text: str) -> str:
    """Java's chars as String.getBytes(UTF_8) would write them: pairs of surrogates are characters, and each of the
    others is a question mark."""

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


def double_text(number: float) -> str:
    """Double.toString, of Java 19 and later: the shortest digits that are this number and no other, two at least."""
    shortest = repr(number)
    if "e-3" in shortest:  # only the smallest numbers leave a choice: 4.9E-324 where Python has 5e-324
        two_digits = f"{number:.1e}"
        shortest = two_digits if float(two_digits) == number else shortest
    return _decimal_text(number, shortest)


def _decimal_text(number: float, shortest: str) -> str:
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    digits, point, sign = _digits(shortest)
    if digits == "0":
        return f"{sign}0.0"
    if -3 < point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        whole, part = digits[:point].ljust(point, "0"), digits[point:]
        return f"{sign}{whole}.{part or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits(shortest: str) -> tuple[str, int, str]:
    """(significant digits, how many of them lie before the point, sign)."""
    mantissa, _, exponent = shortest.lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, part = mantissa.lstrip("-").partition(".")
    digits = whole + part
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", point, sign


BASE64 = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def base64_bytes(text: str) -> bytes:
    """Base64 as Jackson reads it (Base64Variants.MIME_NO_LINEFEEDS): padding must be there, white space may be between
    groups of four. Raises ValueError."""
    result = bytearray()
    group: list[int] = []
    padding = 0
    for character in text:
        if character <= " " and not group:
            continue
        if character == "=" and len(group) + padding in (2, 3) and len(group) >= 2:
            padding += 1
        elif padding or character not in BASE64:
            raise ValueError(f"illegal character {character!r} in base64 content")
        else:
            group.append(BASE64[character])
        if len(group) + padding == 4:
            bits = 0
            for six in group:
                bits = bits << 6 | six
            bits <<= 6 * padding
            result += bits.to_bytes(3, "big")[: 3 - padding]
            group, padding = [], 0
    if group:
        raise ValueError("unexpected end of base64 content")
    return bytes(result)
