"""The parts of a .proto file that are read before protoc compiles it: imports, and explicit map entries."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""//[^\n]* | /\*(?:.*?\*/|.*)                       # comments; one without an end extends to the end of the text
      | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?       # texts
      | [\w.]+ | \S""",
    re.DOTALL | re.VERBOSE,
)
_MAX_TOKENS = 4  # tokens kept of each statement, enough for those that matter here


def imports_of(text: str) -> list[str]:
    """Return the names of the files that a .proto file imports."""
    names = []
    for tokens, depth, _ in _statements(text):
        if depth == 0 and tokens[0] == "import" and tokens[-1][0] in "\"'":
            names.append(tokens[-1][1:-1])
    return names


def with_marked_map_entries(text: str, marker: str) -> str:
    """Replace `option map_entry = true` by a reserved name.

    Confluent's Java clients register a map in the form that it has in a descriptor: a repeated message with that
    option, which protoc refuses in a text. A reserved name has no effect on values and appears in the compiled
    descriptor.

    Args:
        text: The .proto file.
        marker: The reserved name.
    """
    parts, done = [], 0
    edition = False
    for tokens, depth, (start, end) in _statements(text):
        edition = edition or (depth == 0 and tokens[0] == "edition")
        if depth and tokens[:3] == ["option", "map_entry", "="]:
            reserved = f"reserved {marker}" if edition else f'reserved "{marker}"'
            parts += [text[done:start], reserved if tokens[3:] == ["true"] else "", text[end - 1 : end]]
            done = end
    return "".join([*parts, text[done:]])


def _statements(text: str) -> Iterator[tuple[list[str], int, tuple[int, int]]]:
    """Yield (first tokens, number of enclosing braces, (start, end)) for each statement that ends with a semicolon."""
    tokens: list[str] = []
    start = depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith(("//", "/*")):
            continue
        if token in "{};":
            if token == ";" and tokens:
                yield tokens, depth, (start, match.end())
            depth += (token == "{") - (token == "}")
            tokens = []
        elif len(tokens) < _MAX_TOKENS:
            if not tokens:
                start = match.start()
            tokens.append(token)
