"""Parsers of the options of a read that name partitions, offsets or timestamps.

Each parser takes the name of the option and its text, and raises OptionError.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.options import boolean
from kafkalog_spark.source.bounds import EARLIEST, LATEST, Bound
from kafkalog_spark.source.partition_json import (
    JsonFault,
    load_json,
    numbers_by_partition,
    numbers_by_topic,
    short_text,
    topics_in,
)
from kafkalog_spark.source.subscription import Subscription
from kafkalog_spark.source.topic_partitions import TopicPartition

_OFFSET_WORDS = {"latest": LATEST, "earliest": EARLIEST}


def subscribed_topics(name: str, text: str) -> Subscription:
    """Parse `topicA,topicB`."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise OptionError(f"No topics to subscribe to as specified value for option '{name}' is '{text}'")
    return Subscription(topics=names)


def topic_pattern(name: str, text: str) -> Subscription:
    """Parse a regular expression.

    Java's and Python's syntax agree for all constructs that topic names need. Constructs that only Java has are
    refused.
    """
    if not text:
        raise OptionError(f"Pattern to subscribe is empty as specified value for option '{name}' is '{text}'")
    subscribed = Subscription(pattern=text)
    try:
        with warnings.catch_warnings():
            # Python warns of [a&&b], which has another meaning in Java.
            warnings.simplefilter("error", FutureWarning)
            _ = subscribed.regex
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise OptionError(
            f"option '{name}' is not a regular expression that can be used here: '{text}': {error}",
            hint="Python's re parses it, which does not know Java's \\p{...}, \\Q...\\E, (?<name>...) and [a&&b]",
        ) from None
    return subscribed


def assigned(name: str, text: str) -> Subscription:
    """Parse `{"topicA":[0,1]}`. The partitions are sorted."""
    if not text.startswith("{"):
        raise OptionError(f"No topicpartitions to assign as specified value for option '{name}' is '{text}'")
    with _connector_errors(name, text, '{"topicA":[0,1],"topicB":[0,1]}'):
        result: list[TopicPartition] = []
        for topic, partitions in topics_in(load_json(text)):
            if type(partitions) is not list:
                raise JsonFault(f"topic {topic!r} needs a list of partitions")
            for partition in partitions:
                if type(partition) is not int or not 0 <= partition <= MAX_INT32:
                    raise JsonFault(f"{short_text(partition)} is not a partition of topic {topic!r}")
                result.append((topic, partition))
        if len(set(result)) != len(result):
            raise JsonFault("a partition is given twice")
        return Subscription(partitions=tuple(sorted(result)))


def all_topics(name: str, text: str) -> Subscription:
    """Parse a boolean: True subscribes to every topic that is not internal."""
    return Subscription(is_given=boolean(name, text))


def bound_by_offset(name: str, text: str) -> Bound:
    """Parse `earliest` or `latest`, in any case, or `{"topicA":{"0":23,"1":-1},"topicB":"latest"}`."""
    if text.lower() in _OFFSET_WORDS:
        return Bound(_OFFSET_WORDS[text.lower()])
    with _connector_errors(name, text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'):
        offsets: dict[TopicPartition, int] = {}
        topics: dict[str, int] = {}
        for topic, value in topics_in(load_json(text)):
            if type(value) is str:
                if value.lower() not in _OFFSET_WORDS:
                    raise JsonFault(f"topic {topic!r} needs offsets by partition, 'earliest' or 'latest'")
                topics[topic] = _OFFSET_WORDS[value.lower()]
            else:
                offsets |= numbers_by_partition(topic, value, "an offset")
        return Bound(partitions=offsets, topics=topics)


def bound_by_timestamp(name: str, text: str) -> Bound:
    """Parse `{"topicA":{"0":1700000000000}}`: ms by partition."""
    with _connector_errors(
        name, text, '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'
    ):
        return Bound(partitions=numbers_by_topic(load_json(text), "a timestamp"), by_time=True)


def bound_by_global_timestamp(name: str, text: str) -> Bound:
    """Parse ms since 1970. As in Kafka's ListOffsets, -1 means latest and -2 earliest."""
    hint = f"option '{name}' is in milliseconds since 1970-01-01 UTC"
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) > MAX_INT64:
        raise OptionError(f"Expected a single long value, got {' '.join(text.split())}", hint=hint)
    if int(text) < -2:
        raise OptionError(f"Expected a timestamp from 0, or -1 latest, -2 earliest, got {text}", hint=hint)
    return Bound(int(text), by_time=True)


@contextmanager
def _connector_errors(option: str, text: str, expected: str) -> Iterator[None]:
    """Raise a JsonFault as an OptionError with the connector's message. expected: an example of valid JSON."""
    try:
        yield
    except JsonFault as fault:
        sentence = f"Expected e.g. {expected}, got {' '.join(text.split())}"
        raise OptionError(sentence, hint=f"option '{option}': {fault}") from None
