"""The properties a broker starts with: server.properties, --override, and the defaults when there is no file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from kafkalog_broker.config.definition import ConfigError
from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format.meta_properties import parse_properties

DEFAULTS_WITHOUT_FILE: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "group.initial.rebalance.delay.ms": "0",
}
"""Where a broker without a configuration file departs from Kafka's defaults: only this machine can connect, and the
first rebalance of a group does not wait 3 s for further members."""


def read_server_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a file in java.util.Properties format. Raises ConfigError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
    try:
        # As in Kafka, white space around a value is not part of it.
        return {name: value.strip() for name, value in parse_properties(data).items()}
    except CorruptFile as error:
        raise ConfigError(error.what).at(path=os.fspath(path)) from None


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Return the properties in `name=value` arguments. Raises ConfigError for a text without an equals sign."""
    overrides = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--override {text!r}: expected NAME=VALUE, e.g. num.partitions=4")
        overrides[name.strip()] = value.strip()
    return overrides
