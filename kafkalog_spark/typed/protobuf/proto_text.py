"""Parts of a .proto text that are read before protoc compiles it: imports, and map entries that are written out."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""//[^\n]* | /\*(?:.*?\*/|.*)                       # comments; one without an end takes the rest
      | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?       # texts
      | [\w.]+ | \S""",
    re.DOTALL | re.VERBOSE,
)
_MOST_TOKENS = 4  # first tokens of a statement that are kept; the statements that are read here have no more


def imports_of(text: str) -> list[str]:
    """Names of the files that a text imports."""
    names = []
    for tokens, depth, _ in _statements(text):
        if depth == 0 and tokens[0] == "import" and tokens[-1][0] in "\"'":
            names.append(tokens[-1][1:-1])
    return names


def with_marked_map_entries(text: str, marker: str) -> str:
    """The text with `option map_entry = true` replaced by a reserved name, the marker.

    Confluent's Java clients register a map as it is in a descriptor: a repeated message with that option, which protoc
    refuses in a text. A reserved name has no effect on values, and is found again in the compiled descriptor.
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
    """(first tokens, braces around it, position) of each statement that ends with a semicolon."""
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
        elif len(tokens) < _MOST_TOKENS:
            if not tokens:
                start = match.start()
            tokens.append(token)
