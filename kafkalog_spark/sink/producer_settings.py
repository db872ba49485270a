"""From the settings of Kafka's Java producer to those of librdkafka's, so that a job of Spark's Kafka sink can move.

Most have the same name in both (acks, linger.ms, batch.size, retries, delivery.timeout.ms, security.protocol ...). Here
are the producer's own that do not: with another name, without a counterpart that a job would miss, or in Java's own
notation; those of every client are in librdkafka.py. What is left librdkafka refuses by name. Kafka: ProducerConfig;
librdkafka: CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_spark import librdkafka
from kafkalog_spark.errors import OptionError

RENAMED = {"max.request.size": "message.max.bytes", **librdkafka.RENAMED}
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
        elif name == "max.request.size":
            translated[RENAMED[name]] = text
        elif (as_there := librdkafka.translated(name, text)) is not None:
            translated |= as_there
        else:
            settings[name] = text
    return translated | settings, ignored


def _bytes(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"option 'kafka.{name}' must be a number of bytes, got '{text}'")
    return int(text)
