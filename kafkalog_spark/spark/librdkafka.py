"""Translation of settings of Kafka's Java clients into those of librdkafka, and construction of its clients.

Most settings have the same name in both (security.protocol, sasl.mechanism, ssl.ca.location ...). The others have
another name, or a value in a notation that only Java clients parse.

Kafka: CommonClientConfigs, SaslConfigs, SslConfigs; librdkafka: CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.jaas import JaasEntry, parse_jaas

RENAMED = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
}
"""Names of librdkafka by the Java client's names, for settings with equal values."""

_NO_STICKY_PARTITION = "rows without a key are spread at random."
_NO_JAVA_PROCESS = "there is no Java process to measure."
PRODUCER_WITHOUT_EFFECT = {
    "max.block.ms": "a task waits for room in the queue as long as the broker accepts records.",
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
"""Settings of the Java producer that are accepted and ignored, and why. None of them changes which records are written
to which partition. librdkafka itself rejects every other setting that it does not have."""

_CONNECTION_SETTINGS = (
    "bootstrap.servers", "client.id", "enable.ssl.certificate.verification", "security.", "sasl.", "ssl.", "socket.",
    "broker.address.", "receive.buffer.bytes", "send.buffer.bytes",
)  # fmt: skip
"""Names, or prefixes of names, of connection settings, both Java's and librdkafka's. A consumer's other settings
(`max.poll.records`, `fetch.min.bytes` ...) affect fetching, which this source does not do."""

_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")


def is_connection_setting(key: str) -> bool:
    """Return True if `key`, the lower-case name of an option `kafka.*`, is a connection setting."""
    return key.startswith("kafka.") and key.removeprefix("kafka.").startswith(_CONNECTION_SETTINGS)


def connection_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for the connection settings among the options.

    Args:
        texts: Texts of the options by lower-case name.

    Raises:
        OptionError: For a `sasl.jaas.config` that cannot be translated.
    """
    return _settings({key.removeprefix("kafka."): text for key, text in texts.items() if is_connection_setting(key)})


def make_client(make: Callable[[], Any], option: str, missing_hint: str, bad_hint: str) -> Any:
    """Return a client of confluent-kafka, which is not connected yet.

    Args:
        make: Creates the client. It is called after confluent-kafka was imported.
        option: Option that needs the client.
        missing_hint: Hint if the package is missing.
        bad_hint: Hint if the package rejects a setting.

    Raises:
        OptionError: If the package is missing or rejects a setting.
    """
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


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """librdkafka's settings of a producer, and the names of given settings without effect."""

    settings: dict[str, str] = field(repr=False)
    without_effect: list[str]


def producer_settings(given: Mapping[str, str]) -> ProducerSettings:
    """Translate the settings of a Java producer, named without the prefix `kafka.`.

    Raises:
        OptionError: For an invalid `buffer.memory` or `sasl.jaas.config`.
    """
    without_effect = [name for name in given if name in PRODUCER_WITHOUT_EFFECT]
    effective = {name: text for name, text in given.items() if name not in PRODUCER_WITHOUT_EFFECT}
    return ProducerSettings(_settings(effective), without_effect)


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for settings of a Java client, without the prefix `kafka.`.

    A setting with librdkafka's own name takes precedence. Raises OptionError for an invalid `buffer.memory` or
    `sasl.jaas.config`.
    """
    unchanged: dict[str, str] = {}
    translated: dict[str, str] = {}
    for name, text in given.items():
        if name == "sasl.jaas.config":
            translated |= _login(text)
        elif name == "ssl.endpoint.identification.algorithm" and not text:
            translated[name] = "none"
        elif name == "buffer.memory":
            if not text.isascii() or not text.isdigit():
                raise OptionError(f"option 'kafka.{name}' must be a number of bytes, got '{text}'")
            translated["queue.buffering.max.kbytes"] = str(max(int(text) >> 10, 1))
        elif name in RENAMED:
            # -1 leaves the size of a socket's buffer to the operating system; librdkafka's value for this is 0.
            is_default = text == "-1" and name.endswith(".buffer.bytes")
            translated[RENAMED[name]] = "0" if is_default else text
        else:
            unchanged[name] = text
    return translated | unchanged


def _login(text: str) -> dict[str, str]:
    """Return user and password of a JAAS entry. Errors do not quote the text, because it contains the password."""
    try:
        entry = parse_jaas(text.rstrip().removesuffix(";") + ";")
    except ValueError:
        entry = JaasEntry("", {})
    module, options = entry.module, entry.options
    if module.rpartition(".")[2] not in _PASSWORD_MODULES or not {"username", "password"} <= options.keys():
        raise OptionError(
            "option 'kafka.sasl.jaas.config' names no user and password of PlainLoginModule or ScramLoginModule",
            hint="give librdkafka's settings instead: kafka.sasl.username and kafka.sasl.password, or those of OAuth "
            "(kafka.sasl.oauthbearer.*) or Kerberos (kafka.sasl.kerberos.*)",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}
