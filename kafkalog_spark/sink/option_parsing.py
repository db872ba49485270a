"""Parsing of the options of a write, and the checks of options against each other."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.codecs import compression_level
from kafkalog_spark.options import (
    GivenOptions,
    local_path,
    unknown_option,
)
from kafkalog_spark.sink.foreign_options import REFUSED, SUGGESTED_OPTIONS
from kafkalog_spark.sink.options import WRITE_OPTIONS, WriteOptions
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.store.paths import OBJECT_SCHEMES, normalised
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option
from kafkalog_spark.typed.formats import ResolvedFormat, check_options

_log = logging.getLogger(__name__)

_ONLY_FOR_FILES = ("segment.bytes", "max.message.bytes", "message.timestamp.type", "numPartitions")
"""Options without effect with kafka.bootstrap.servers: the broker's topics have such settings."""
_PRODUCER_PREFIX = "kafka."
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NO_OPTIONS_HINT = (
    "if this is a table: Spark does not hand a table's options to a source in Python, so use INSERT INTO table WITH "
    "('path' = '...', 'topic' = '...')"
)


def parse_write_options(options: Mapping[str, str], read_only: Collection[str] = ()) -> WriteOptions:
    """Parse the options of a write. Options without effect are logged in one line.

    Args:
        options: Options as Spark passes them: names in any case, values perhaps surrounded by blanks.
        read_only: Names, in lower case, of options that only reads have.

    Raises:
        OptionError: For an invalid value, options that exclude each other, an option that the connector refuses, an
            option of reads, and an unknown name, for which the most similar known name is suggested.
    """
    given = GivenOptions(options, WRITE_OPTIONS)
    for name, why in REFUSED.items():
        if name in given:
            raise OptionError(why)
    for spec in WRITE_OPTIONS:
        _ = given[spec.name]  # raises for an invalid value
    values = given.fields(WriteOptions)
    through_broker = "kafka.bootstrap.servers" in given
    formats = _formats(given)
    ignored = _ignored(given, read_only, through_broker=through_broker)
    producer: dict[str, str] = {}
    if through_broker:
        translated = _producer_settings(given, values)
        producer = translated.settings
        ignored += tuple(given.names[_PRODUCER_PREFIX + name] for name in translated.without_effect)
    try:
        values["level"] = compression_level(values["codec"], values["level"])
    except ValueError as error:
        raise OptionError(f"option 'compression.level': {error}") from None
    for name, largest in (("max.message.bytes", "max_message_bytes"), ("segment.bytes", "segment_bytes")):
        if values["batch_size"] > values[largest]:
            raise OptionError(
                f"option 'batch.size' is {values['batch_size']}, larger than '{name}' ({values[largest]})",
                hint="a record batch must not exceed either limit",
            )
    values["path"] = None if through_broker else _path(values["path"], bool(given.names))
    storage = StorageOptions.of(given.select(is_storage_option))
    result = WriteOptions(**values, storage=storage, producer=producer, formats=formats, ignored=ignored)
    if ignored:
        _log.warning("options without effect on a write of kafkalog: %s", ", ".join(ignored))
    return result


def _formats(given: GivenOptions) -> tuple[ResolvedFormat, ...]:
    """Return the formats of values and keys. Raises OptionError for an unknown format, or an unknown option of one."""
    result = []
    for side in ("value", "key"):
        prefixed = given.of_side(side)
        name = prefixed.pop("format", None)
        if name is None:
            if prefixed:
                raise OptionError(f"option '{side}.{next(iter(prefixed))}' requires '{side}.format'")
            continue
        check_options(name, {option: given.names[f"{side}.{option}"] for option in prefixed})
        result.append(ResolvedFormat(name.lower(), prefixed, side))
    return tuple(result)


def _path(text: str | None, any_given: bool) -> str:
    """Parse the path. any_given: False if the write has no option at all."""
    if not text:
        hint = 'name it in .save("/data/kafka-logs")'
        raise OptionError("no log directory is given", hint=hint if any_given else f"{hint}; {_NO_OPTIONS_HINT}")
    if text.startswith("[") or "," in text:
        raise OptionError(
            f"option 'path' must be one log directory, got '{text}'", hint="write once for each of log.dirs"
        )
    if (scheme := _SCHEME.match(text)) and scheme[1].lower() in OBJECT_SCHEMES:
        return normalised(text)
    other_scheme = "rows are written to a local directory or to a bucket (s3://, gs://, abfss://)"
    return os.path.expanduser(local_path("path", text, other_scheme))


def _ignored(given: GivenOptions, read_only: Collection[str], *, through_broker: bool) -> tuple[str, ...]:
    """Return the names, as given, of options without effect. Raises OptionError for unknown options."""
    specs = [spec.name for spec in WRITE_OPTIONS]
    used = {name.lower() for name in specs}
    files_only = {name.lower() for name in _ONLY_FOR_FILES} if through_broker else set()
    result = []
    for key, name in given.names.items():
        if (key in used and key not in files_only) or is_storage_option(key) or key.startswith(("value.", "key.")):
            continue
        of_producer = key.startswith(_PRODUCER_PREFIX)
        plain = key.removeprefix(_PRODUCER_PREFIX)
        if not of_producer and (key in files_only or key == "includeheaders"):
            result.append(name)
        elif not of_producer and given.is_table_property(key):
            continue
        elif key in read_only:
            raise OptionError(
                f"option '{name}' is a read option, and this is a write",
                hint="a view over a log directory is for reading it; to write in SQL: INSERT INTO table WITH ('path' = "
                "'...', 'topic' = '...'), where table is made by CREATE TABLE ... USING kafkalog",
            )
        elif not of_producer:
            raise unknown_option(name, specs, SUGGESTED_OPTIONS)
        elif not through_broker:
            if plain in used:
                raise OptionError(
                    f"option '{name}' requires kafka.bootstrap.servers",
                    hint=f"did you mean '{plain}'?",
                )
            result.append(name)
    return tuple(result)


def _producer_settings(given: GivenOptions, values: Mapping[str, Any]) -> librdkafka.ProducerSettings:
    """Return the settings of the producer. The options `kafka.*` override those that files and brokers share."""
    if "path" in given:
        raise OptionError(
            "options 'path' and 'kafka.bootstrap.servers' are both given, but rows are written to only one of them",
            hint="leave out 'path' to send them to the broker, or 'kafka.bootstrap.servers' to write to the directory",
        )
    of_producer = {
        key.removeprefix(_PRODUCER_PREFIX): text
        for key, text in given.texts.items()
        if key.startswith(_PRODUCER_PREFIX)
    }
    if not of_producer["bootstrap.servers"]:
        raise OptionError("option 'kafka.bootstrap.servers' is empty", hint="it is host:port, several by comma")
    translated = librdkafka.producer_settings(of_producer)
    shared = {
        "compression.type": values["codec"].label,
        "compression.level": values["level"],
        "batch.size": values["batch_size"],
    }
    for name, value in shared.items():
        if name in given:
            translated.settings.setdefault(name, str(value))
    return translated
