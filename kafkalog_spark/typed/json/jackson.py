"""A tokenizer that behaves like Jackson's ReaderBasedJsonParser, also after errors.

from_json continues after some errors, and the following tokens then depend on how far Jackson had read. Jackson reads a
name together with the value after it, but only the opening quote of a string. This tokenizer takes the same steps, and
`next_token` and `string` may be called again after a JsonError.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum

from kafkalog_spark.typed.json.jackson_base64 import BASE64, base64_bytes
from kafkalog_spark.typed.json.options import JsonOptions

MAX_NAME = 50_000  # characters of a name: StreamReadConstraints.DEFAULT_MAX_NAME_LEN
_MAX_DEPTH, _MAX_NUMBER, _MAX_STRING = 1000, 1000, 20_000_000  # levels and characters: StreamReadConstraints
_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_PLAIN_WITH_CONTROLS = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_DIGITS = tuple("0123456789")
_INTEGER = re.compile(r"0|[1-9][0-9]*")
_ANY_INTEGER = re.compile(r"[0-9]+")
_FRACTION = re.compile(r"\.[0-9]+")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\"}
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n\r]*", re.DOTALL)
_WHITE_SPACE, _PADDING, _END = -1, -2, -3  # instead of the six bits of a base64 character
_MAX_SKIPPED = 256  # characters of an invalid word that Jackson skips at most (ErrorReportConfiguration)
_IDENTIFIER_PARTS = frozenset(["Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Nd", "Sc", "Pc", "Mn", "Mc", "Cf"])
_IDENTIFIER_STARTS = _IDENTIFIER_PARTS - {"Nd", "Mn", "Mc", "Cf"}
_ASCII_IDENTIFIER_PARTS = frozenset(
    chr(code)
    for code in range(128)
    if chr(code).isalnum() or chr(code) in "_$" or code in (*range(9), *range(14, 28), 127)
)


class Token(Enum):
    """The members of Jackson's JsonToken that occur in a text."""

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
    """Corresponds to Jackson's JsonProcessingException."""


class JacksonReader:
    """Tokenizer of one text.

    Attributes:
        token: Current token; None before the first and after the last one.
        number: Text of the last INTEGER or FLOAT token.
    """

    def __init__(self, text: str, options: JsonOptions) -> None:
        self._text = text
        self._options = options
        self._at = 0
        self._quote: str | None = None
        self._contexts = [_Context("")]
        self._token_after_name: Token | None = None
        self._string = ""
        self.token: Token | None = None
        self.number = ""

    @property
    def name(self) -> str | None:
        """Name of the current member (JsonParser.currentName), also at the beginning of its object or array."""
        if self.token in (Token.START_OBJECT, Token.START_ARRAY) and len(self._contexts) > 1:
            return self._contexts[-2].name
        return self._contexts[-1].name

    def next_token(self) -> Token | None:
        """Advance to the next token and return it; None at the end.

        Raises:
            JsonError: If the text is not valid JSON. `token` is then that of Jackson.
        """
        if self.token is Token.NAME:
            value, self._token_after_name = self._token_after_name, None
            if value in (Token.START_OBJECT, Token.START_ARRAY):
                self._open(value)
            self.token = value
            return value
        if self._quote is not None:
            self._finish_string()
        begin = self._skip_space()
        if not begin:
            self._check_complete("expected close marker")
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
                self._check_complete("expected a value")
        if context.kind == "{":
            context.name = self._read_name(begin)
            self.token = Token.NAME
            if (char := self._skip_space()) != ":":
                if not char:
                    self._check_complete("was expecting a colon")
                raise self._unexpected(char, "was expecting a colon to separate name and value")
            self._token_after_name = self._read_value(self._skip_space())
            return self.token
        token = self._read_value(begin)
        if token in (Token.START_OBJECT, Token.START_ARRAY):
            self._open(token)
        self.token = token
        return token

    def string(self) -> str:
        """Return the text of a STRING token with escapes replaced. Raises JsonError."""
        if self._quote is not None:
            self._string = self._finish_string()
        return self._string

    def binary(self) -> bytes:
        """Return the bytes of a STRING token in base64 (MIME_NO_LINEFEEDS).

        Padding is required; white space is allowed between groups of four characters.

        Raises:
            JsonError: If the string is not base64 of this form. The next token then begins after the next quote.
        """
        if self._quote is None:
            try:
                return base64_bytes(self._string)
            except ValueError as error:
                raise JsonError(str(error)) from None
        result = bytearray()
        while (first := self._base64_bits(0)) != _END:
            if first == _WHITE_SPACE:
                continue
            bits = first << 6 | self._base64_bits(1)
            third = self._base64_bits(2)
            if third == _PADDING:
                if self._base64_bits(3, padded=True) != _PADDING:
                    raise JsonError("expected padding character '=' in base64 content")
                result.append(bits >> 4)
                continue
            bits = bits << 6 | third
            fourth = self._base64_bits(3)
            result += (bits >> 2).to_bytes(2, "big") if fourth == _PADDING else (bits << 6 | fourth).to_bytes(3, "big")
        self._quote = None
        return bytes(result)

    def skip_children(self) -> None:
        """If the current token begins an object or array, advance to its end. Raises JsonError."""
        if self.token not in (Token.START_OBJECT, Token.START_ARRAY):
            return
        depth = 1
        while depth:
            token = self.next_token()
            if token is None:
                self._check_complete("expected close marker")
                return
            if token in (Token.START_OBJECT, Token.START_ARRAY):
                depth += 1
            elif token in (Token.END_OBJECT, Token.END_ARRAY):
                depth -= 1

    def _open(self, token: Token) -> None:
        if len(self._contexts) > _MAX_DEPTH:
            raise JsonError(f"nested deeper than {_MAX_DEPTH} levels")
        self._contexts.append(_Context(token.value))

    def _close(self, char: str) -> Token:
        context = self._contexts[-1]
        if context.kind + char not in ("{}", "[]"):
            raise self._unexpected(char, "does not close what is open")
        self._contexts.pop()
        return Token.END_OBJECT if char == "}" else Token.END_ARRAY

    def _check_complete(self, described: str) -> None:
        """Raise JsonError if the text has ended inside an object or array. described: what was expected."""
        if self._contexts[-1].kind:
            raise JsonError(f"unexpected end-of-input: {described}")

    def _skip_space(self) -> str:
        """Skip white space and comments; consume and return the next character, or "" at the end of the text."""
        text = self._text
        while True:
            match = _SPACE.match(text, self._at)
            assert match is not None
            self._at = match.end()
            char = text[self._at : self._at + 1]
            self._at += len(char)
            if char == "/":
                if not self._options.comments:  # Jackson reports this as an error of white space
                    raise self._unexpected(char, "maybe a comment: allowComments allows them")
                comment = _COMMENT.match(text, self._at - 1)
                if comment is None:
                    ends = not text.startswith("*", self._at)
                    self._at = min(self._at + 1, len(text)) if ends else len(text)
                    raise self._unexpected(char, "a comment does not end")
                self._at = comment.end()
                continue
            if char and char < " ":
                raise self._unexpected(char, "only white space is allowed between tokens")
            return char

    def _read_name(self, char: str) -> str:
        if char == '"' or (char == "'" and self._options.single_quotes):
            self._quote = char
            name = self._finish_string(is_name=True)
        elif self._options.unquoted_names and _is_name_part(char):
            begin = self._at - 1
            while _is_name_part(self._text[self._at : self._at + 1]):
                self._at += 1
            name = self._text[begin : self._at]
        else:
            raise self._unexpected(char, "was expecting double-quote to start field name")
        if len(name) > MAX_NAME:
            raise JsonError(f"a name is longer than {MAX_NAME} characters")
        return name

    def _read_value(self, char: str) -> Token:
        """Read the token of a value whose first character, `char`, has been consumed."""
        if not char:
            self._check_complete("expected a value")
            raise JsonError("unexpected end-of-input: expected a value")
        if char == '"':
            self._quote = char
            return Token.STRING
        if char in "{[":
            return Token.START_OBJECT if char == "{" else Token.START_ARRAY
        if char in _DIGITS:
            return self._read_number(self._at - 1, self._at - 1)
        if char == "-" and self._text[self._at : self._at + 1] in _DIGITS:
            return self._read_number(self._at - 1, self._at)
        if char in "-+":
            return self._read_infinity(char)
        for token in (Token.TRUE, Token.FALSE, Token.NULL):
            if char == token.value[0]:
                self._consume_word(token.value, 1)
                return token
        if char == "'" and self._options.single_quotes:
            self._quote = char
            self._string = self._finish_string()
            return Token.STRING
        if char in "NI":
            word = "NaN" if char == "N" else "Infinity"
            self._consume_word(word, 1)
            return self._accept_non_numeric(word)
        if unicodedata.category(char) in _IDENTIFIER_STARTS:  # Character.isJavaIdentifierStart
            self._invalid_token(char)
        raise self._unexpected(char, "expected a valid value")

    def _read_number(self, begin: int, digits_at: int) -> Token:
        """Read a number that begins at `begin` and whose digits begin at `digits_at`."""
        text = self._text
        pattern = _ANY_INTEGER if self._options.leading_zeros else _INTEGER
        integer = pattern.match(text, digits_at)
        assert integer is not None
        at, digits = integer.end(), integer[0]
        if self._options.leading_zeros:
            digits = digits.lstrip("0") or "0"
        elif digits == "0" and text[at : at + 1] in _DIGITS:
            self._at = at
            raise JsonError("invalid numeric value: leading zeroes not allowed")
        token, length = Token.INTEGER, len(digits)
        # Position after an error: after the point or the e, but one further if the number begins with 0.
        error_at = at + 1
        if text[at : at + 1] == ".":
            fraction = _FRACTION.match(text, at)
            if fraction is None:
                self._at = error_at if digits != "0" else at + 2
                raise JsonError("decimal point not followed by a digit")
            at, token = fraction.end(), Token.FLOAT
            length += len(fraction[0]) - 1
        if text[at : at + 1] in ("e", "E"):
            exponent = _EXPONENT.match(text, at)
            if exponent is None:
                self._at = error_at if digits != "0" else at + (3 if text[at + 1 : at + 2] in ("+", "-") else 2)
                raise JsonError("exponent indicator not followed by a digit")
            at, token = exponent.end(), Token.FLOAT
            length += len(exponent[0].lstrip("eE+-"))
        self._at = at
        if length > _MAX_NUMBER:
            raise JsonError(f"a number is longer than {_MAX_NUMBER} characters")
        self.number = ("-" if digits_at > begin else "") + digits + text[integer.end() : at]
        return token

    def _read_infinity(self, sign: str) -> Token:
        """Read the rest of -INF, +INF, -Infinity or +Infinity, after the sign. Raises JsonError for anything else."""
        first = self._text[self._at : self._at + 1]
        self._at += len(first)
        if first == "I":
            second = self._text[self._at : self._at + 1]
            self._at += len(second)
            word = {"N": "INF", "n": "Infinity"}.get(second)
            if word is not None:
                self._consume_word(sign + word, 3)
                return self._accept_non_numeric(sign + word)
        raise self._unexpected(first, "expected a digit (0-9) to follow the sign")

    def _accept_non_numeric(self, word: str) -> Token:
        if not self._options.non_numeric:
            raise JsonError(f"non-standard token '{word}': enable allowNonNumericNumbers to allow it")
        self.number = word
        return Token.FLOAT

    def _consume_word(self, word: str, at: int) -> None:
        """Consume word[at:]. Raises JsonError if the text continues differently."""
        for char in word[at:]:
            if self._text[self._at : self._at + 1] != char:
                self._invalid_token(word)
            self._at += 1
        following = self._text[self._at : self._at + 1]
        if following >= "0" and _is_identifier_part(following):
            self._invalid_token(word)

    def _invalid_token(self, word: str) -> None:
        """Skip the rest of an invalid word and raise JsonError."""
        for _ in range(_MAX_SKIPPED):
            if not _is_identifier_part(self._text[self._at : self._at + 1]):
                break
            self._at += 1
        raise JsonError(f"unrecognized token near '{word}'")

    def _finish_string(self, *, is_name: bool = False) -> str:
        """Read to the closing quote. After an error the position is that of the error."""
        quote, self._quote = self._quote, None
        assert quote is not None
        text, parts, length = self._text, [], 0
        plain = (_PLAIN_WITH_CONTROLS if self._options.control_characters else _PLAIN)[quote]
        while True:
            match = plain.match(text, self._at)
            assert match is not None
            parts.append(match[0])
            length += len(match[0])
            self._at = match.end()
            if length > _MAX_STRING and not is_name:
                raise JsonError(f"a string is longer than {_MAX_STRING} characters")
            char = text[self._at : self._at + 1]
            self._at += 1
            if char == quote:
                return "".join(parts)
            if not char:
                self._at = len(text)
                raise JsonError("unexpected end-of-input in a string")
            if char != "\\":
                raise JsonError(f"illegal unquoted character (code {ord(char)}): it has to be escaped")
            parts.append(self._read_escape())
            length += 1

    def _read_escape(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char in _ESCAPES and char:
            return _ESCAPES[char]
        if char == "u":
            digits = ""
            for _ in range(4):
                digit = self._text[self._at : self._at + 1]
                self._at += 1
                # Jackson ignores all but the low eight bits (CharTypes.charToHex)
                if not digit or chr(ord(digit) & 0xFF) not in "0123456789abcdefABCDEF":
                    raise JsonError("expected a hex-digit for character escape sequence")
                digits += chr(ord(digit) & 0xFF)
            return chr(int(digits, 16))
        if not char:
            raise JsonError("unexpected end-of-input in a character escape sequence")
        if self._options.any_escape or (char == "'" and self._options.single_quotes):
            return char
        raise JsonError(f"unrecognized character escape {char!r}")

    def _base64_bits(self, index: int, *, padded: bool = False) -> int:
        """Return the six bits of the next base64 character, which is number `index` of a group of four.

        Other results are _PADDING, and for the first character _WHITE_SPACE for white space and _END for a quote.
        """
        char = self._text[self._at : self._at + 1]
        self._at += len(char)
        if not char:
            raise JsonError("unexpected end-of-input in base64 content")
        if index == 0 and char <= " ":
            return _WHITE_SPACE
        if char == '"':
            if index == 0:
                return _END
            if index > 1 and not padded:
                self._at -= 1
            raise JsonError("unexpected end of base64 content")
        if char == "\\":
            char = self._read_escape()
            if index == 0 and char <= " ":
                return _WHITE_SPACE
        if char == "=" and index > 1:
            return _PADDING
        if char not in BASE64:
            raise JsonError(f"illegal character {char!r} in base64 content")
        return BASE64[char]

    def _unexpected(self, char: str, expected: str) -> JsonError:
        return JsonError(f"unexpected character {char!r} at character {self._at - 1}: {expected}")


@dataclass(slots=True)
class _Context:
    """An open object or array, or the root."""

    kind: str  # "{", "[", or "" for the root
    members: int = 0
    name: str | None = None


def _is_identifier_part(char: str) -> bool:
    """Return whether a character is one of Character.isJavaIdentifierPart; false for an empty text."""
    if char.isascii():
        return char in _ASCII_IDENTIFIER_PARTS
    return unicodedata.category(char) in _IDENTIFIER_PARTS or "\x80" <= char <= "\x9f"


def _is_name_part(char: str) -> bool:
    """Return whether a character may be in a name without quotes (CharTypes.getInputCodeLatin1JsNames)."""
    return char > " " and (char in "@#*-+" or _is_identifier_part(char))
