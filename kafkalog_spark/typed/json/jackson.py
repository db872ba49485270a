"""JSON as Jackson's ReaderBasedJsonParser reads it, token by token, errors and what follows them included; the options
of from_json, which switch its features and more.

from_json goes on after some errors, and what it then finds depends on what the parser has looked at already: the value
after a name is read together with the name, but of a string only the first quote. So the steps here are Jackson's:
`next_token` and `string` can fail, and reading may go on afterwards.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum

from kafkalog_spark.typed.json.jackson_base64 import BASE64, base64_bytes
from kafkalog_spark.typed.json.options import JsonOptions


class Token(Enum):
    """Tokens of Jackson's JsonToken that a text can give."""

    START_OBJECT = "{"
    END_OBJECT = "}"
    START_ARRAY = "["
    END_ARRAY = "]"
    NAME = "name"
    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    TRUE = "true"
    FALSE = "false"
    NULL = "null"


class JsonError(Exception):
    """Jackson's JsonProcessingException."""


_MAX_DEPTH, _MAX_NUMBER, _MAX_STRING = 1000, 1000, 20_000_000  # levels, characters: StreamReadConstraints
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
_LONGEST_TOKEN = 256  # characters of a wrong word that Jackson passes over (ErrorReportConfiguration)
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


def is_of_name(sign: str) -> bool:
    """True if a character, or nothing, can be in a name without quotes (CharTypes.getInputCodeLatin1JsNames)."""
    return sign > " " and (sign in "@#*-+" or is_of_identifier(sign))


MAX_NAME = 50_000  # characters of a name: StreamReadConstraints.DEFAULT_MAX_NAME_LEN


@dataclass(slots=True)
class _Context:
    """Where the parser is: at the root (kind ""), in an object or in an array."""

    kind: str
    members: int = 0
    name: str | None = None


class JacksonReader:
    """The tokens of one text. Its position is Jackson's, also after an error. token: the current one, None before the
    first and after the last. number: the text of the last number."""

    def __init__(self, text: str, options: JsonOptions) -> None:
        self._text = text
        self._options = options
        self._at = 0
        self._quote: str | None = None
        self._contexts = [_Context("")]
        self._waiting: Token | None = None
        self._string = ""
        self.token: Token | None = None
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
                if not self._options.comments:  # an error of white space, before a comma is counted
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

    def _match(self, word: str, at: int) -> None:
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
        if not self._options.non_numeric:
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
        pattern = _ANY_INTEGER if self._options.leading_zeros else _INTEGER
        whole = pattern.match(text, digits_at)
        assert whole is not None
        at, digits = whole.end(), whole[0]
        if self._options.leading_zeros:
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
        if length > _MAX_NUMBER:
            raise JsonError(f"a number is longer than {_MAX_NUMBER} characters")
        self.number = ("-" if digits_at > begin else "") + digits + text[whole.end() : at]
        return token

    def _finish_string(self, *, is_name: bool = False) -> str:
        """Read on to the closing quote. After an error reading goes on where it was met."""
        quote, self._quote = self._quote, None
        assert quote is not None
        text, parts, length = self._text, [], 0
        plain = (_PLAIN_WITH_CONTROLS if self._options.control_characters else _PLAIN)[quote]
        while True:
            found = plain.match(text, self._at)
            assert found is not None
            parts.append(found[0])
            length += len(found[0])
            self._at = found.end()
            if length > _MAX_STRING and not is_name:
                raise JsonError(f"a string is longer than {_MAX_STRING} characters")
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
        if self._options.any_escape or (sign == "'" and self._options.single_quotes):
            return sign
        raise JsonError(f"unrecognized character escape {sign!r}")

    def _base64_bits(self, index: int, *, padded: bool = False) -> int:
        """Six bits of the next character, number `index` of four; or PADDING, and before the first WHITE or END."""
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

    @property
    def name(self) -> str | None:
        """JsonParser.currentName: of an object or array that has just begun, its own name."""
        if self.token in (Token.START_OBJECT, Token.START_ARRAY) and len(self._contexts) > 1:
            return self._contexts[-2].name
        return self._contexts[-1].name

    def next_token(self) -> Token | None:
        """The next token. Raises JsonError, and leaves `token` as Jackson does then."""
        if self.token is Token.NAME:
            waiting, self._waiting = self._waiting, None
            if waiting in (Token.START_OBJECT, Token.START_ARRAY):
                self._begin(waiting)
            self.token = waiting
            return waiting
        if self._quote is not None:
            self._finish_string()
        begin = self._skip_space()
        if not begin:
            self._end_of_input("expected close marker")
            self.token = None
            return None
        context = self._contexts[-1]
        if begin in "]}":
            self.token = self._close(begin)
            return self.token
        context.members += 1
        if context.members > 1 and context.kind:
            if begin != ",":
                raise self._unexpected(begin, "was expecting comma to separate entries")
            begin = self._skip_space()
            if not begin:
                self._end_of_input("expected a value")
        if context.kind == "{":
            context.name = self._read_name(begin)
            self.token = Token.NAME
            if (sign := self._skip_space()) != ":":
                if not sign:
                    self._end_of_input("was expecting a colon")
                raise self._unexpected(sign, "was expecting a colon to separate name and value")
            self._waiting = self._read_value(self._skip_space())
            return self.token
        token = self._read_value(begin)
        if token in (Token.START_OBJECT, Token.START_ARRAY):
            self._begin(token)
        self.token = token
        return token

    def string(self) -> str:
        """The text of a STRING token, escapes replaced. Raises JsonError."""
        if self._quote is not None:
            self._string = self._finish_string()
        return self._string

    def binary(self) -> bytes:
        """Bytes of a STRING token in base64 (MIME_NO_LINEFEEDS): padding must be there, white space may be between
        groups of four. Raises JsonError, and then the next token is looked for after the next quote."""
        if self._quote is None:
            try:
                return base64_bytes(self._string)
            except ValueError as error:
                raise JsonError(str(error)) from None
        result = bytearray()
        while (first := self._base64_bits(0)) != END:
            if first == WHITE:
                continue
            bits = first << 6 | self._base64_bits(1)
            third = self._base64_bits(2)
            if third == PADDING:
                if self._base64_bits(3, padded=True) != PADDING:
                    raise JsonError("expected padding character '=' in base64 content")
                result.append(bits >> 4)
                continue
            bits = bits << 6 | third
            fourth = self._base64_bits(3)
            result += (bits >> 2).to_bytes(2, "big") if fourth == PADDING else (bits << 6 | fourth).to_bytes(3, "big")
        self._quote = None
        return bytes(result)

    def skip_children(self) -> None:
        """If the current token begins an object or array, go to its end. Raises JsonError."""
        if self.token not in (Token.START_OBJECT, Token.START_ARRAY):
            return
        open_ = 1
        while open_:
            token = self.next_token()
            if token is None:
                self._end_of_input("expected close marker")
                return
            if token in (Token.START_OBJECT, Token.START_ARRAY):
                open_ += 1
            elif token in (Token.END_OBJECT, Token.END_ARRAY):
                open_ -= 1

    def _begin(self, token: Token) -> None:
        if len(self._contexts) > _MAX_DEPTH:
            raise JsonError(f"nested deeper than {_MAX_DEPTH} levels")
        self._contexts.append(_Context(token.value))

    def _close(self, sign: str) -> Token:
        context = self._contexts[-1]
        if context.kind + sign not in ("{}", "[]"):
            raise self._unexpected(sign, "does not close what is open")
        self._contexts.pop()
        return Token.END_OBJECT if sign == "}" else Token.END_ARRAY

    def _end_of_input(self, what: str) -> None:
        if self._contexts[-1].kind:
            raise JsonError(f"unexpected end-of-input: {what}")

    def _read_name(self, sign: str) -> str:
        if sign == '"' or (sign == "'" and self._options.single_quotes):
            self._quote = sign
            name = self._finish_string(is_name=True)
        elif self._options.unquoted_names and is_of_name(sign):
            begin = self._at - 1
            while is_of_name(self._text[self._at : self._at + 1]):
                self._at += 1
            name = self._text[begin : self._at]
        else:
            raise self._unexpected(sign, "was expecting double-quote to start field name")
        if len(name) > MAX_NAME:
            raise JsonError(f"a name is longer than {MAX_NAME} characters")
        return name

    def _read_value(self, sign: str) -> Token:
        """The token of a value that begins with `sign`, which has been passed over."""
        if not sign:
            self._end_of_input("expected a value")
            raise JsonError("unexpected end-of-input: expected a value")
        if sign == '"':
            self._quote = sign
            return Token.STRING
        if sign in "{[":
            return Token.START_OBJECT if sign == "{" else Token.START_ARRAY
        if sign in DIGITS:
            return self._read_number(self._at - 1, self._at - 1)
        if sign == "-" and self._text[self._at : self._at + 1] in DIGITS:
            return self._read_number(self._at - 1, self._at)
        if sign in "-+":
            return self._read_odd_number(sign)
        for token in (Token.TRUE, Token.FALSE, Token.NULL):
            if sign == token.value[0]:
                self._match(token.value, 1)
                return token
        if sign == "'" and self._options.single_quotes:
            self._quote = sign
            self._string = self._finish_string()
            return Token.STRING
        if sign in "NI":
            word = "NaN" if sign == "N" else "Infinity"
            self._match(word, 1)
            return self._non_numeric(word)
        if unicodedata.category(sign) in _BEGINNING_IDENTIFIERS:  # Character.isJavaIdentifierStart
            self._invalid_token(sign)
        raise self._unexpected(sign, "expected a valid value")
