"""Settings of a mirror, from the command line of kafkalog-mirror or of kafkalog-broker --mirror-of."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog_broker.mirror.client_properties import ClientSettings, client_settings
from kafkalog_broker.mirror.source_address import Address, parse_bootstrap
from kafkalog_spark.errors import OptionError

_GIVE_UP_MS = 60_000  # as in Kafka's admin client (default.api.timeout.ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """Settings of a mirror.

    Attributes:
        bootstrap: Nodes of the source from which the first metadata is requested.
        directory: Log directory of the mirror.
        topics: Pattern for whole topic names.
        internal: Mirror internal topics too.
        once: Stop at the high watermarks that the source has at the start.
        max_bytes_per_second: Limit of the bytes received; None for no limit.
        settings: Settings of the connections to the source.
        refresh_s: Interval of metadata requests.
        give_up_ms: With `once`: fail if no record arrives for this long before the mirror is complete.
        max_versions: Highest version to use by API key, for tests.
        keeps_own_internal_topics: The internal topics in the directory belong to the broker that serves the mirror, so
            those of the source are not mirrored.
    """

    bootstrap: list[Address]
    directory: Path
    topics: re.Pattern[str]
    internal: bool = False
    once: bool = False
    max_bytes_per_second: int | None = None
    settings: ClientSettings = field(default_factory=ClientSettings)
    refresh_s: float = 10.0
    give_up_ms: int = _GIVE_UP_MS
    max_versions: Mapping[int, int] = field(default_factory=dict)
    keeps_own_internal_topics: bool = False


def command_options(arguments: argparse.Namespace) -> MirrorOptions:
    """Return the settings of the command kafkalog-mirror. Raises OptionError."""
    return MirrorOptions(
        bootstrap=parse_bootstrap(arguments.bootstrap),
        directory=Path(arguments.log_dir),
        topics=_parse_topics("--topics", arguments.topics),
        internal=arguments.internal,
        once=arguments.once,
        max_bytes_per_second=arguments.max_bytes_per_second,
        settings=_client_settings(arguments.X),
    )


def serving_options(
    bootstrap: str, topics: str, properties: Iterable[str], max_bytes_per_second: int | None, directories: Iterable[str]
) -> MirrorOptions:
    """Return the settings of a mirror that a broker runs while it serves. Raises OptionError."""
    paths = [Path(directory) for directory in directories]
    if len(paths) != 1:
        raise OptionError(
            f"--mirror-of with {len(paths)} log directories", hint="a mirror uses one log directory: give one"
        )
    return MirrorOptions(
        bootstrap=parse_bootstrap(bootstrap),
        directory=paths[0],
        topics=_parse_topics("--mirror-topics", topics),
        max_bytes_per_second=max_bytes_per_second,
        settings=_client_settings(properties),
        keeps_own_internal_topics=True,
    )


def _parse_topics(option: str, text: str) -> re.Pattern[str]:
    """Parse a pattern for whole topic names. Raises OptionError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(f"{option} {text!r} is not a regular expression: {error}") from None


def _client_settings(properties: Iterable[str]) -> ClientSettings:
    """Parse the properties of -X NAME=VALUE; values env:NAME are read from the environment. Raises OptionError."""
    settings = client_settings(map(_from_environment, properties))
    settings.tls_context()  # raises OptionError for certificates that cannot be read
    return settings


def _from_environment(text: str) -> str:
    name, _, value = text.partition("=")
    variable = value.removeprefix("env:")
    if variable == value:
        return text
    if variable not in os.environ:
        raise OptionError(f"-X {name}: the environment variable {variable} is not set")
    return f"{name}={os.environ[variable]}"
