"""JSON as Jackson's ReaderBasedJsonParser reads it, token by token, errors and what follows them included.

from_json goes on after some errors, and what it then finds depends on what the parser has looked at already: the value
after a name is read together with the name, but of a string only the first quote. So the steps here are Jackson's:
`next_token` and `string` can fail, and reading may go on afterwards.
"""

from __future__ import annotations

from kafkalog_spark.typed.jackson_scanner import (
    DIGITS,
    END,
    PADDING,
    WHITE,
    JacksonScanner,
    begins_identifier,
    is_of_name,
)
from kafkalog_spark.typed.jackson_tokens import Features, JsonError, Token
from kafkalog_spark.typed.java_text import base64_bytes

MAX_NAME = 50_000
"""Characters of a name: StreamReadConstraints.DEFAULT_MAX_NAME_LEN."""


class _Context:
    """Where the parser is: at the root (kind ""), in an object or in an array."""

    __slots__ = ("kind", "members", "name")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.members = 0
        self.name: str | None = None


class JacksonReader(JacksonScanner):
    """The tokens of one text. `token`: the current one, None before the first and after the last."""

    def __init__(self, text: str, features: Features) -> None:
        super().__init__(text, features)
        self._contexts = [_Context("")]
        self._waiting: Token | None = None
        self._string = ""
        self.token: Token | None = None

    # ---- what Spark's parser asks

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
            self._skip_colon()
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
        """The bytes that a STRING token is in base64, of the variant MIME_NO_LINEFEEDS: padding must be there, and
        white space may be between groups of four. Raises JsonError, and then the next token is looked for after the
        next quote."""
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

    # ---- structure

    def _begin(self, token: Token) -> None:
        if len(self._contexts) > self._features.max_depth:
            raise JsonError(f"nested deeper than {self._features.max_depth} levels")
        self._contexts.append(_Context(token.value))

    def _close(self, sign: str) -> Token:
        context = self._contexts[-1]
        if context.kind + sign not in ("{}", "[]"):
            raise self._unexpected(sign, "does not close what is open")
        self._contexts.pop()
        return Token.END_OBJECT if sign == "}" else Token.END_ARRAY

    def _skip_colon(self) -> None:
        sign = self._skip_space()
        if sign != ":":
            if not sign:
                self._end_of_input("was expecting a colon")
            raise self._unexpected(sign, "was expecting a colon to separate name and value")

    def _end_of_input(self, what: str) -> None:
        if self._contexts[-1].kind:
            raise JsonError(f"unexpected end-of-input: {what}")

    # ---- names and values

    def _read_name(self, sign: str) -> str:
        if sign == '"' or (sign == "'" and self._features.single_quotes):
            self._quote = sign
            name = self._finish_string(is_name=True)
        elif self._features.unquoted_names and is_of_name(sign):
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
        if sign == "'" and self._features.single_quotes:
            self._quote = sign
            self._string = self._finish_string()
            return Token.STRING
        if sign in "NI":
            word = "NaN" if sign == "N" else "Infinity"
            self._match(word, 1)
            return self._non_numeric(word)
        if begins_identifier(sign):
            self._invalid_token(sign)
        raise self._unexpected(sign, "expected a valid value")
