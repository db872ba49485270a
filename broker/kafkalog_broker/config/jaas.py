"""JAAS entries as Kafka's properties hold them: `a.b.PlainLoginModule required user_alice="secret";`."""

from __future__ import annotations

import re

from kafkalog_broker.config.definition import ConfigError

_TOKEN = re.compile(r'\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<mark>[=;])|(?P<word>[^\s"=;]+))', re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


def parse_jaas(text: str, name: str) -> tuple[str, dict[str, str]]:
    """The class of the login module, and its options. `name`: the property, for errors, which show nothing of the text.
    Raises ConfigError."""
    tokens: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None:
            raise _wrong(name, f"a quotation mark is not closed, after {len(tokens)} words")
        kind = str(found.lastgroup)
        value = found[kind]
        tokens.append((kind, re.sub(r"\\(.)", r"\1", value) if kind == "quoted" else value))
        position = found.end()
    if not tokens or tokens[-1] != ("mark", ";"):
        raise _wrong(name, "it does not end with a semicolon")
    head, options = tokens[:2], tokens[2:-1]
    if len(head) < 2 or head[0][0] != "word" or head[1][0] != "word" or head[1][1].lower() not in _FLAGS:
        raise _wrong(name, "it does not begin with a class and `required`")
    if len(options) % 3 or any(mark != ("mark", "=") for mark in options[1::3]):
        raise _wrong(name, "its options are not of the form name=value")
    return head[0][1], {key: value for (_, key), (_, value) in zip(options[::3], options[2::3], strict=True)}


def _wrong(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"Invalid value [hidden] for configuration {name}: {why}",
        name=name,
        hint="expected one entry: org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_NAME="PASSWORD";',
    )
