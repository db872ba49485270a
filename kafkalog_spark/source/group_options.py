"""The option `commitGroup`: which consumer group a stream's offsets are committed to, and how its broker is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalog_spark import librdkafka
from kafkalog_spark.errors import OptionError
from kafkalog_spark.option_text import GivenOptions

BOOTSTRAP = "kafka.bootstrap.servers"
_PREFIX = "kafka."
_OF_A_CONNECTION = (
    "bootstrap.servers",
    "client.id",
    "enable.ssl.certificate.verification",
    "security.",
    "sasl.",
    "ssl.",
    "socket.",
    "broker.address.",
    "receive.buffer.bytes",
    "send.buffer.bytes",
)
"""Names, and beginnings of names, of settings that say how a client connects, in Java's words or librdkafka's. What
else a consumer has (`max.poll.records`, `fetch.min.bytes` ...) is about fetching, and nothing is fetched."""


@dataclass(frozen=True)
class CommitGroup:
    """`group`: its id. `settings`: librdkafka's, with passwords, so in no repr. `fail`: whether a commit that fails is
    the query's failure."""

    group: str
    settings: Mapping[str, str] = field(repr=False)
    fail: bool


def of_the_connection(key: str) -> bool:
    """Whether an option, its name in small letters, says how the broker of commitGroup is reached."""
    return key.startswith(_PREFIX) and key.removeprefix(_PREFIX).startswith(_OF_A_CONNECTION)


def commit_group(given: GivenOptions, plain: Mapping[str, Any], *, streaming: bool) -> CommitGroup | None:
    """What the options ask for; None without `commitGroup`.

    Raises OptionError for a batch, an empty group, and a group without a broker.
    """
    group: str | None = plain["commitGroup"]
    if group is None:
        if plain["failOnCommitError"]:
            raise OptionError("option 'failOnCommitError' is given, and no 'commitGroup' that could be committed to")
        return None
    if not streaming:
        raise OptionError(
            "option 'commitGroup' is of streams: a batch has no offsets that it goes on from", hint="use readStream"
        )
    if not group:
        raise OptionError("option 'commitGroup' must be the id of a consumer group, got ''")
    if not given.texts.get(BOOTSTRAP):
        raise OptionError(
            f"option 'commitGroup' needs '{BOOTSTRAP}': a group's offsets are kept by a broker",
            hint=f"name one: .option('{BOOTSTRAP}', 'host:9092')",
        )
    settings: dict[str, str] = {}
    as_in_librdkafka: dict[str, str] = {}
    for key, text in given.texts.items():
        if of_the_connection(key):
            name = key.removeprefix(_PREFIX)
            changed = librdkafka.translated(name, text)
            if changed is None:
                settings[name] = text
            else:
                as_in_librdkafka |= changed
    return CommitGroup(group, as_in_librdkafka | settings, plain["failOnCommitError"])
