"""What a command line says of a mirror: the same for kafkalog-mirror and for kafkalog-broker --mirror-of."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable
from pathlib import Path

from kafkalog_broker.mirror.client_properties import ClientSettings, client_settings
from kafkalog_broker.mirror.mirror import MirrorOptions
from kafkalog_broker.mirror.source import parse_bootstrap
from kafkalog_spark.errors import OptionError

_FROM_ENVIRONMENT = "env:"


def parse_bytes(text: str) -> int:
    """`500k`, `50M`. Raises argparse.ArgumentTypeError."""
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of bytes, such as 500k or 50M")
    return int(found[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[found[2]]


def parse_topics(option: str, text: str) -> re.Pattern[str]:
    """The pattern that whole names are to match. Raises OptionError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(f"{option} {text!r} is no regular expression: {error}") from None


def settings_of(properties: Iterable[str]) -> ClientSettings:
    """Of -X NAME=VALUE; values env:NAME are taken from the environment. Raises OptionError, also for files of
    certificates that cannot be read."""
    settings = client_settings(map(_from_environment, properties))
    settings.tls_context()
    return settings


def _from_environment(text: str) -> str:
    name, separator, value = text.partition("=")
    if not value.startswith(_FROM_ENVIRONMENT):
        return text
    variable = value.removeprefix(_FROM_ENVIRONMENT)
    if variable not in os.environ:
        raise OptionError(f"-X {name}: there is no environment variable {variable}")
    return name + separator + os.environ[variable]


def serving_options(
    bootstrap: str, topics: str, properties: Iterable[str], max_bytes_per_second: int | None, directories: Iterable[str]
) -> MirrorOptions:
    """Of a broker that mirrors while it serves. Raises OptionError."""
    paths = [Path(directory) for directory in directories]
    if len(paths) != 1:
        raise OptionError(
            f"--mirror-of with {len(paths)} log directories", hint="a mirror lies in one log directory: give one"
        )
    return MirrorOptions(
        bootstrap=parse_bootstrap(bootstrap),
        directory=paths[0],
        topics=parse_topics("--mirror-topics", topics),
        max_bytes_per_second=max_bytes_per_second,
        settings=settings_of(properties),
        own_internal_topics=True,
    )
