"""What the formats of values and keys look up when a query is planned: files of schemas, registries, `_schemas`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.subscription import Assign, Subscribe
from kafkalog_spark.source.typed_options import FormatOptions
from kafkalog_spark.typed.decoder import SchemaSources, settled_options


def with_settled_formats(options: ReadOptions) -> ReadOptions:
    """The options with everything that decoders need, so that tasks look up nothing that a plan can. Raises what the
    formats do."""
    typed = options.typed
    sides = {side.side: _settled(side, options) for side in typed.sides}
    return replace(options, typed=replace(typed, **sides)) if sides else options


def _settled(side: FormatOptions, options: ReadOptions) -> FormatOptions:
    asked = options.subscription
    topics: tuple[str, ...] = ()
    if isinstance(asked, Subscribe):
        topics = asked.topics
    elif isinstance(asked, Assign):
        topics = tuple(sorted({topic for topic, _ in asked.partitions}))
    sources = SchemaSources(side.side, topics, partial(_records, options))
    return replace(side, options=tuple(sorted(settled_options(side.format, dict(side.options), sources).items())))


def _records(options: ReadOptions, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of every record of a topic of the log directories that are read."""
    from kafkalog_spark.log.log_dir import LogDirs

    dirs = LogDirs.open(options.paths, options.storage, options.tier)
    for batch in dirs.scan(topic, columns=("key", "value")):
        yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
