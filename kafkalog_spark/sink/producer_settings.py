"""From the settings of Kafka's Java producer to those of librdkafka's, so that a job of Spark's Kafka sink can move.

Most have the same name in both (acks, linger.ms, batch.size, retries, delivery.timeout.ms, security.protocol ...). Here
are the others: with another name, without a counterpart that a job would miss, or in Java's own notation. What is left
librdkafka refuses by name. Kafka: ProducerConfig; librdkafka: CONFIGURATION.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkalog_spark.errors import OptionError

RENAMED = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Java's name, and librdkafka's for the same value."""

WITHOUT_EFFECT = {
    "max.block.ms": "a task waits for room in the queue as long as the broker takes records",
    "metadata.max.idle.ms": "librdkafka keeps what it knows of a topic",
    "socket.connection.setup.timeout.max.ms": "only `socket.connection.setup.timeout.ms` counts",
    "partitioner.adaptive.partitioning.enable": "rows without a key are spread at random",
    "partitioner.availability.timeout.ms": "rows without a key are spread at random",
    "auto.include.jmx.reporter": "there is no Java process to be measured",
    "metric.reporters": "there is no Java process to be measured",
    "metrics.num.samples": "there is no Java process to be measured",
    "metrics.recording.level": "there is no Java process to be measured",
    "metrics.sample.window.ms": "there is no Java process to be measured",
}
"""Accepted and ignored, with the reason: none of them changes which records arrive, or where."""

_KIB = 1024
_LOGIN = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\s+(.*?);?\s*", re.DOTALL)
_LOGIN_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')
_WITH_PASSWORD = ("PlainLoginModule", "ScramLoginModule")


def librdkafka_settings(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(settings for librdkafka, names without effect) of a producer's settings, names without the prefix `kafka.`.

    A setting by librdkafka's own name takes precedence over one that is translated. Raises OptionError for a value of
    `buffer.memory` or `sasl.jaas.config` that cannot be translated.
    """
    settings: dict[str, str] = {}
    translated: dict[str, str] = {}
    ignored = []
    for name, text in given.items():
        if name in WITHOUT_EFFECT:
            ignored.append(name)
        elif name == "buffer.memory":
            translated["queue.buffering.max.kbytes"] = str(max(_bytes(name, text) // _KIB, 1))
        elif name == "sasl.jaas.config":
            translated |= _login(text)
        elif name == "ssl.endpoint.identification.algorithm" and not text:
            settings[name] = "none"
        elif name in RENAMED:
            # -1 leaves a socket's buffer to the operating system: 0 in librdkafka
            translated[RENAMED[name]] = "0" if text == "-1" and name.endswith("buffer.bytes") else text
        else:
            settings[name] = text
    return translated | settings, ignored


def _bytes(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"option 'kafka.{name}' must be a number of bytes, got '{text}'")
    return int(text)


def _login(text: str) -> dict[str, str]:
    """User and password of a line of JAAS. The text is in no message: it holds the password."""
    found = _LOGIN.fullmatch(text)
    module = found[1].rpartition(".")[2] if found else ""
    options = {
        match[1]: re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        for match in _LOGIN_OPTION.finditer(found[2] if found else "")
    }
    if module not in _WITH_PASSWORD or not {"username", "password"} <= options.keys():
        raise OptionError(
            "option 'kafka.sasl.jaas.config' names no user and password of PlainLoginModule or ScramLoginModule",
            hint="give librdkafka's settings instead: kafka.sasl.username and kafka.sasl.password, or those of OAuth "
            "(kafka.sasl.oauthbearer.*) or Kerberos (kafka.sasl.kerberos.*)",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}
