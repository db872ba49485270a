"""Tokenizer of .proto files: finds imports, and the statements that are replaced before protoc compiles the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""//[^\n]* | /\*(?:.*?\*/|.*)                       # comments; one without an end extends to the end of the text
      | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?       # strings
      | [\w.]+ | \S""",
    re.DOTALL | re.VERBOSE,
)
_MAX_TOKENS = 4  # tokens kept of each statement, enough for imports and options


class Statement(NamedTuple):
    """A statement that ends with a semicolon: text[start:end]."""

    tokens: list[str]  # the first ones
    depth: int  # number of enclosing braces
    start: int
    end: int


def imports_of(text: str) -> list[str]:
    """Return the names of the files that a .proto file imports."""
    names = []
    for statement in statements_of(text):
        tokens = statement.tokens
        if statement.depth == 0 and tokens[0] == "import" and tokens[-1][0] in "\"'":
            names.append(tokens[-1][1:-1])
    return names


def statements_of(text: str) -> Iterator[Statement]:
    """Yield the statements of a .proto file that end with a semicolon."""
    tokens: list[str] = []
    start = depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith(("//", "/*")):
            continue
        if token in "{};":
            if token == ";" and tokens:
                yield Statement(tokens, depth, start, match.end())
            depth += (token == "{") - (token == "}")
            tokens = []
        elif len(tokens) < _MAX_TOKENS:
            if not tokens:
                start = match.start()
            tokens.append(token)
