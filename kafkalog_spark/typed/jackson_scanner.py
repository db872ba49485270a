"""What tokens of JSON are made of, character by character as Jackson's ReaderBasedJsonParser reads it: white space and
comments, words, numbers, strings and characters in base64.

Where reading stands after an error is Jackson's too, for it may go on there.
"""

from __future__ import annotations

import re
import unicodedata

from kafkalog_spark.typed.jackson_tokens import Features, JsonError, Token
from kafkalog_spark.typed.java_text import BASE64

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_PLAIN_WITH_CONTROLS = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
DIGITS = tuple("0123456789")
_INTEGER = re.compile(r"0|[1-9][0-9]*")
_ANY_INTEGER = re.compile(r"[0-9]+")
_FRACTION = re.compile(r"\.[0-9]+")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\"}
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n\r]*", re.DOTALL)
WHITE, PADDING, END = -1, -2, -3  # in base64, no six bits
_LONGEST_TOKEN = 256
"""Characters of a wrong word that Jackson passes over (ErrorReportConfiguration)."""
_OF_IDENTIFIERS = frozenset(["Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Nd", "Sc", "Pc", "Mn", "Mc", "Cf"])
_BEGINNING_IDENTIFIERS = _OF_IDENTIFIERS - {"Nd", "Mn", "Mc", "Cf"}
_ASCII_OF_IDENTIFIERS = frozenset(
    chr(code)
    for code in range(128)
    if chr(code).isalnum() or chr(code) in "_$" or code in (*range(9), *range(14, 28), 127)
)


def is_of_identifier(sign: str) -> bool:
    """Character.isJavaIdentifierPart, of a character or nothing."""
    if sign.isascii():
        return sign in _ASCII_OF_IDENTIFIERS
    return unicodedata.category(sign) in _OF_IDENTIFIERS or "\x80" <= sign <= "\x9f"


def begins_identifier(sign: str) -> bool:
    """Character.isJavaIdentifierStart, of a character or nothing."""
    return bool(sign) and unicodedata.category(sign) in _BEGINNING_IDENTIFIERS


def is_of_name(sign: str) -> bool:
    """Whether a character, or nothing, can be in a name without quotes (CharTypes.getInputCodeLatin1JsNames)."""
    return sign > " " and (sign in "@#*-+" or is_of_identifier(sign))


class JacksonScanner:
    """One text, and where reading stands in it. `number`: the text of the last number."""

    def __init__(self, text: str, features: Features) -> None:
        self._text = text
        self._features = features
        self._at = 0
        self._quote: str | None = None
        self.number = ""

    def _skip_space(self) -> str:
        """Pass over white space (and comments) and the character there, which is returned; empty at the end."""
        text = self._text
        while True:
            found = _SPACE.match(text, self._at)
            assert found is not None
            self._at = found.end()
            sign = text[self._at : self._at + 1]
            self._at += len(sign)
            if sign == "/":
                if not self._features.comments:  # an error of white space, before a comma is counted
                    raise self._unexpected(sign, "maybe a comment: allowComments allows them")
                comment = _COMMENT.match(text, self._at - 1)
                if comment is None:
                    ends = not text.startswith("*", self._at)
                    self._at = min(self._at + 1, len(text)) if ends else len(text)
                    raise self._unexpected(sign, "a comment does not end")
                self._at = comment.end()
                continue
            if sign and sign < " ":
                raise self._unexpected(sign, "only white space is allowed between tokens")
            return sign

    def _unexpected(self, sign: str, what: str) -> JsonError:
        return JsonError(f"unexpected character {sign!r} at character {self._at - 1}: {what}")

    # ---- words and numbers

    def _match(self, word: str, at: int) -> None:
        """Pass over word[at:]."""
        for sign in word[at:]:
            if self._text[self._at : self._at + 1] != sign:
                self._invalid_token(word)
            self._at += 1
        following = self._text[self._at : self._at + 1]
        if following >= "0" and is_of_identifier(following):
            self._invalid_token(word)

    def _invalid_token(self, word: str) -> None:
        """Pass over what looks like a word. Raises JsonError."""
        for _ in range(_LONGEST_TOKEN):
            if not is_of_identifier(self._text[self._at : self._at + 1]):
                break
            self._at += 1
        raise JsonError(f"unrecognized token near '{word}'")

    def _non_numeric(self, word: str) -> Token:
        if not self._features.non_numeric:
            raise JsonError(f"non-standard token '{word}': enable allowNonNumericNumbers to allow it")
        self.number = word
        return Token.FLOAT

    def _read_odd_number(self, sign: str) -> Token:
        first = self._text[self._at : self._at + 1]
        self._at += len(first)
        if first == "I":
            second = self._text[self._at : self._at + 1]
            self._at += len(second)
            word = {"N": "INF", "n": "Infinity"}.get(second)
            if word is not None:
                self._match(sign + word, 3)
                return self._non_numeric(sign + word)
        raise self._unexpected(first, "expected a digit (0-9) to follow the sign")

    def _read_number(self, begin: int, digits_at: int) -> Token:
        text = self._text
        pattern = _ANY_INTEGER if self._features.leading_zeros else _INTEGER
        whole = pattern.match(text, digits_at)
        assert whole is not None
        at, digits = whole.end(), whole[0]
        if self._features.leading_zeros:
            digits = digits.lstrip("0") or "0"
        elif digits == "0" and text[at : at + 1] in DIGITS:
            self._at = at
            raise JsonError("invalid numeric value: leading zeroes not allowed")
        token, length = Token.INTEGER, len(digits)
        begin_part = at + 1  # where Jackson goes on after an error: past the point or the e, after a 0 one further
        if text[at : at + 1] == ".":
            fraction = _FRACTION.match(text, at)
            if fraction is None:
                self._at = begin_part if digits != "0" else at + 2
                raise JsonError("decimal point not followed by a digit")
            at, token = fraction.end(), Token.FLOAT
            length += len(fraction[0]) - 1
        if text[at : at + 1] in ("e", "E"):
            exponent = _EXPONENT.match(text, at)
            if exponent is None:
                self._at = begin_part if digits != "0" else at + (3 if text[at + 1 : at + 2] in ("+", "-") else 2)
                raise JsonError("exponent indicator not followed by a digit")
            at, token = exponent.end(), Token.FLOAT
            length += len(exponent[0].lstrip("eE+-"))
        self._at = at
        if length > self._features.max_number:
            raise JsonError(f"a number is longer than {self._features.max_number} characters")
        self.number = ("-" if digits_at > begin else "") + digits + text[whole.end() : at]
        return token

    # ---- strings

    def _finish_string(self, *, is_name: bool = False) -> str:
        """Read on to the closing quote. After an error reading goes on where it was met."""
        quote, self._quote = self._quote, None
        assert quote is not None
        text, parts, length = self._text, [], 0
        plain = (_PLAIN_WITH_CONTROLS if self._features.control_characters else _PLAIN)[quote]
        while True:
            found = plain.match(text, self._at)
            assert found is not None
            parts.append(found[0])
            length += len(found[0])
            self._at = found.end()
            if length > self._features.max_string and not is_name:
                raise JsonError(f"a string is longer than {self._features.max_string} characters")
            sign = text[self._at : self._at + 1]
            self._at += 1
            if sign == quote:
                return "".join(parts)
            if not sign:
                self._at = len(text)
                raise JsonError("unexpected end-of-input in a string")
            if sign != "\\":
                raise JsonError(f"illegal unquoted character (code {ord(sign)}): it has to be escaped")
            parts.append(self._escaped())
            length += 1

    def _escaped(self) -> str:
        sign = self._text[self._at : self._at + 1]
        self._at += 1
        if sign in _ESCAPES and sign:
            return _ESCAPES[sign]
        if sign == "u":
            digits = ""
            for _ in range(4):
                digit = self._text[self._at : self._at + 1]
                self._at += 1
                # Jackson looks at the low eight bits alone (CharTypes.charToHex)
                if not digit or chr(ord(digit) & 0xFF) not in "0123456789abcdefABCDEF":
                    raise JsonError("expected a hex-digit for character escape sequence")
                digits += chr(ord(digit) & 0xFF)
            return chr(int(digits, 16))
        if not sign:
            raise JsonError("unexpected end-of-input in a character escape sequence")
        if self._features.any_escape or (sign == "'" and self._features.single_quotes):
            return sign
        raise JsonError(f"unrecognized character escape {sign!r}")

    def _base64_bits(self, index: int, *, padded: bool = False) -> int:
        """Six bits of the next character, which is number `index` of four; or PADDING, and in front of the first one
        WHITE, END."""
        sign = self._text[self._at : self._at + 1]
        self._at += len(sign)
        if not sign:
            raise JsonError("unexpected end-of-input in base64 content")
        if index == 0 and sign <= " ":
            return WHITE
        if sign == '"':
            if index == 0:
                return END
            if index > 1 and not padded:
                self._at -= 1
            raise JsonError("unexpected end of base64 content")
        if sign == "\\":
            sign = self._escaped()
            if index == 0 and sign <= " ":
                return WHITE
        if sign == "=" and index > 1:
            return PADDING
        if sign not in BASE64:
            raise JsonError(f"illegal character {sign!r} in base64 content")
        return BASE64[sign]
