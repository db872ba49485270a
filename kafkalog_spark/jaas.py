"""Parser of `sasl.jaas.config`: one entry, `a.b.PlainLoginModule required username="me" password="secret";`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r'\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<mark>[=;])|(?P<word>[^\s"=;]+))', re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module with its options, which may hold passwords."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Parse a single JAAS entry.

    Raises:
        ValueError: If `text` is malformed. The message quotes nothing of it, because it may hold a password.
    """
    tokens: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"a quotation mark is not closed, after {len(tokens)} words")
        kind = str(found.lastgroup)
        value = found[kind]
        tokens.append((kind, re.sub(r"\\(.)", r"\1", value) if kind == "quoted" else value))
        position = found.end()
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
