"""From the settings of Kafka's Java clients to those of librdkafka's, for every kind of client: what has another name,
or Java's own notation. Most have the same name in both (security.protocol, sasl.mechanism, ssl.ca.location ...).

Kafka: CommonClientConfigs, SaslConfigs, SslConfigs; librdkafka: CONFIGURATION.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kafkalog_spark.errors import OptionError

RENAMED = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
}
"""Java's name, and librdkafka's for the same value."""

_NO_STICKY_PARTITION = "rows without a key are spread at random."
_NO_JAVA_PROCESS = "there is no Java process to be measured."
PRODUCER_WITHOUT_EFFECT = {
    "max.block.ms": "a task waits for room in the queue as long as the broker takes records.",
    "metadata.max.idle.ms": "librdkafka keeps its metadata.",
    "socket.connection.setup.timeout.max.ms": "only `socket.connection.setup.timeout.ms` counts.",
    "partitioner.adaptive.partitioning.enable": _NO_STICKY_PARTITION,
    "partitioner.availability.timeout.ms": _NO_STICKY_PARTITION,
    "auto.include.jmx.reporter": _NO_JAVA_PROCESS,
    "metric.reporters": _NO_JAVA_PROCESS,
    "metrics.num.samples": _NO_JAVA_PROCESS,
    "metrics.recording.level": _NO_JAVA_PROCESS,
    "metrics.sample.window.ms": _NO_JAVA_PROCESS,
}
"""Settings of the Java producer that are accepted and ignored, and why: none changes which records arrive, or where.
librdkafka refuses by name every other setting that it does not have."""

_CONNECTION_SETTINGS = (
    "bootstrap.servers", "client.id", "enable.ssl.certificate.verification", "security.", "sasl.", "ssl.", "socket.",
    "broker.address.", "receive.buffer.bytes", "send.buffer.bytes",
)  # fmt: skip
"""Names, and beginnings of names, of settings that say how a client connects, in Java's words or librdkafka's. What
else a consumer has (`max.poll.records`, `fetch.min.bytes` ...) is about fetching, and nothing is fetched."""

_WITH_PASSWORD = ("PlainLoginModule", "ScramLoginModule")


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings for those of a client of Kafka's, without the prefix `kafka.`. A setting by librdkafka's
    own name takes precedence. Raises OptionError for a `buffer.memory` or `sasl.jaas.config` that is none."""
    own: dict[str, str] = {}
    by_javas_name: dict[str, str] = {}
    for name, text in given.items():
        if name == "sasl.jaas.config":
            by_javas_name |= _login(text)
        elif name == "ssl.endpoint.identification.algorithm" and not text:
            by_javas_name[name] = "none"
        elif name == "buffer.memory":
            if not text.isascii() or not text.isdigit():
                raise OptionError(f"option 'kafka.{name}' must be a number of bytes, got '{text}'")
            by_javas_name["queue.buffering.max.kbytes"] = str(max(int(text) >> 10, 1))
        elif name in RENAMED:
            # -1 leaves a socket's buffer to the operating system: 0 in librdkafka
            by_system = text == "-1" and name.endswith(".buffer.bytes")
            by_javas_name[RENAMED[name]] = "0" if by_system else text
        else:
            own[name] = text
    return by_javas_name | own


def is_of_connection(key: str) -> bool:
    """True if an option `kafka.*`, its name in small letters, says how a broker is reached."""
    return key.startswith("kafka.") and key.removeprefix("kafka.").startswith(_CONNECTION_SETTINGS)


def connection_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings of those options, names in small letters, that say how a broker is reached. Raises
    OptionError for a `sasl.jaas.config` that cannot be translated."""
    return _settings({key.removeprefix("kafka."): text for key, text in texts.items() if is_of_connection(key)})


def made(make: Callable[[], Any], option: str, missing_hint: str, bad_hint: str) -> Any:
    """Unconnected client of confluent-kafka. Raises OptionError if the package is missing or refuses a setting."""
    try:
        from confluent_kafka import KafkaException
    except ImportError as error:
        raise OptionError(f"option '{option}' needs the package confluent-kafka: {error}", hint=missing_hint) from None
    try:
        return make()
    except KafkaException as error:
        text = error.args[0].str()
    except (TypeError, ValueError) as error:
        text = str(error)
    raise OptionError(f"an option 'kafka.*' cannot be used: {text}", hint=bad_hint)


def producer_settings(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(librdkafka's settings, names without effect) of a producer's. Raises as `_settings`."""
    without_effect = [name for name in given if name in PRODUCER_WITHOUT_EFFECT]
    return _settings({name: text for name, text in given.items() if name not in without_effect}), without_effect


def _login(text: str) -> dict[str, str]:
    """User and password of a line of JAAS. The text is in no message: it holds the password."""
    try:
        module, options = parse_jaas(text.rstrip().removesuffix(";") + ";")
    except ValueError:
        module, options = "", {}
    if module.rpartition(".")[2] not in _WITH_PASSWORD or not {"username", "password"} <= options.keys():
        raise OptionError(
            "option 'kafka.sasl.jaas.config' names no user and password of PlainLoginModule or ScramLoginModule",
            hint="give librdkafka's settings instead: kafka.sasl.username and kafka.sasl.password, or those of OAuth "
            "(kafka.sasl.oauthbearer.*) or Kerberos (kafka.sasl.kerberos.*)",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


# `sasl.jaas.config`: one entry, `a.b.PlainLoginModule required username="me" password="secret";`.

_TOKEN = re.compile(r'\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<mark>[=;])|(?P<word>[^\s"=;]+))', re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """(Class of the login module, its options). Raises ValueError, whose message shows nothing of the text."""
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
    return head[0][1], {key: value for (_, key), (_, value) in zip(options[::3], options[2::3], strict=True)}
