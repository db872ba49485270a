"""server.properties and what the command line adds to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from kafkalog_broker.config.definition import ConfigError
from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.log.format.meta_properties import parse_properties

# Without a configuration file: a broker for one machine and for tests. What differs from Kafka's defaults: only this
# machine can connect, and a group's first rebalance does not wait 3 s for members that never come.
EMBEDDED_DEFAULTS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "group.initial.rebalance.delay.ms": "0",
}


def read_server_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The file's properties, in the format of java.util.Properties. Raises ConfigError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
    try:
        # Kafka's scripts hand values on as they stand after the equals sign, without white space at the end.
        return {name: value.strip() for name, value in parse_properties(data).items()}
    except CorruptFile as error:
        raise ConfigError(error.what).at(path=os.fspath(path)) from None


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """`name=value` of --override. Raises ConfigError for a text without an equals sign."""
    overrides = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--override {text!r}: expected NAME=VALUE, e.g. num.partitions=4")
        overrides[name.strip()] = value.strip()
    return overrides
