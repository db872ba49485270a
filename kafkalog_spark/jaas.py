"""Parser of `sasl.jaas.config`: one entry, `a.b.PlainLoginModule required username="me" password="secret";`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r'\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<mark>[=;])|(?P<word>[^\s"=;]+))', re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module with its options, which may contain passwords."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Parse a single JAAS entry.

    Raises:
        ValueError: If `text` is malformed. The message does not quote the text, because it may contain a password.
    """
    tokens: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"a quotation mark after {len(tokens)} words is not closed")
        kind = str(match.lastgroup)
        value = match[kind]
        tokens.append((kind, re.sub(r"\\(.)", r"\1", value) if kind == "quoted" else value))
        position = match.end()
    if not tokens or tokens[-1] != ("mark", ";"):
        raise ValueError("it does not end with a semicolon")
    head, options = tokens[:2], tokens[2:-1]
    if len(head) < 2 or head[0][0] != "word" or head[1][0] != "word" or head[1][1].lower() not in _FLAGS:
        raise ValueError("it does not begin with a class and `required`")
    if len(options) % 3 or any(mark != ("mark", "=") for mark in options[1::3]):
        raise ValueError("its options are not of the form name=value")
    return JaasEntry(
        head[0][1], {name: value for (_, name), (_, value) in zip(options[::3], options[2::3], strict=True)}
    )
