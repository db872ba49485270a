"""Partitions and offsets in options and checkpoints, as JSON (Spark: `JsonUtils`): parsed strictly, written in one way.

    offsets      {"topicA":{"0":23,"1":-1},"topicB":"earliest"}   -1 latest, -2 earliest; whole topics: SPARK-58774
    timestamps   {"topicA":{"0":1700000000000}}                   ms; -1 and -2 as in Kafka's ListOffsets
    partitions   {"topicA":[0,1]}

A checkpoint also has the topic IDs of its offsets: `"topicA@<topic id>":{}`, for Kafka 2.8 and newer. The Kafka source
ignores such a member, as it ignores every topic without partitions.

The connector (Jackson) accepts 1.9, true and "23" as numbers, and uses the last of two equal keys. Here these are
errors, because the result would differ from what is written.
"""

from __future__ import annotations

import json
import re
import uuid
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from kafkalog_spark.errors import MalformedOffsets, OptionError, UnknownPartition
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import is_internal, similar_topics, valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.options import boolean

TopicPartition = tuple[str, int]

LATEST = -1
EARLIEST = -2
"""The end and the start of a log in Kafka's ListOffsets, as an offset and as a timestamp."""

_SHOWN_PARTITIONS = 20  # in an error message


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end of a read (Spark: `KafkaOffsetRangeLimit`). `bound_resolution` resolves it in a log.

    Attributes:
        of_all: Number for every partition; None if `partitions` and `topics` name them.
        partitions: Number by partition.
        topics: Number by topic, for all its partitions.
        by_time: Numbers are timestamps (ms), which mean the first offset with at least that timestamp. Otherwise they
            are offsets.
    """

    of_all: int | None = None
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    by_time: bool = False

    @property
    def named_topics(self) -> set[str]:
        return {*self.topics, *(topic for topic, _ in self.partitions)}

    def numbers(self, assigned: Collection[TopicPartition]) -> tuple[Mapping[TopicPartition, int], set[str]]:
        """Return the number of each assigned or named partition, and the topics of which no partition is assigned."""
        if self.of_all is not None:
            return dict.fromkeys(assigned, self.of_all), set()
        of_topics = {tp: self.topics[tp[0]] for tp in assigned if tp[0] in self.topics}
        return of_topics | dict(self.partitions), self.topics.keys() - {topic for topic, _ in assigned}


AT_EARLIEST, AT_LATEST = Bound(EARLIEST), Bound(LATEST)
"""Late-bound: resolved again at every action. The end is that of the log, with read_committed the LSO."""


def tp_text(topic_partition: TopicPartition) -> str:
    """Return `topic-0`, Kafka's notation of a partition."""
    return f"{topic_partition[0]}-{topic_partition[1]}"


def check_bounds_agree(start: Bound, end: Bound) -> None:
    """Raise OptionError if two bounds of the same kind name different partitions, or a start is after its end.

    Partitions of whole topics are compared later, when they are known.
    """
    if start.by_time != end.by_time or start.of_all is not None or end.of_all is not None:
        return
    kind, starts, ends = "timestamp" if start.by_time else "offset", start.partitions, end.partitions
    whole = {*start.topics, *end.topics}
    only_here = {tp for tp in starts.keys() ^ ends.keys() if tp[0] not in whole}
    if only_here or start.named_topics != end.named_topics:
        raise OptionError(
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {set_text(starts, start)}, "
            f"topic-partitions for end offset: {set_text(ends, end)}."
        )
    for tp in sorted(starts.keys() & ends.keys()):
        if starts[tp] > ends[tp] >= 0:  # LATEST and EARLIEST are negative, and cannot be compared yet
            raise OptionError(
                f"The specified start {kind} {starts[tp]} is greater than the end {kind} {ends[tp]} "
                f"for topic {tp[0]} partition {tp[1]}.",
                topic_partition=tp_text(tp),
            )


def set_text(partitions: Collection[TopicPartition], bound: Bound | None = None) -> str:
    """Return partitions as the connector prints a set of them; whole topics of `bound` as `topic-*`."""
    whole = [f"{topic}-*" for topic in sorted(bound.topics)] if bound is not None else []
    return f"Set({cut_text([*whole, *map(tp_text, sorted(partitions))])})"


def cut_text(names: list[str]) -> str:
    """Return names with commas, only the first ones if there are many."""
    more = len(names) - _SHOWN_PARTITIONS
    return ", ".join(names[:_SHOWN_PARTITIONS]) + (f", ... ({more} more)" if more > 0 else "")


_WHOLE_TOPIC = {"latest": LATEST, "earliest": EARLIEST}
PARTITION_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


class _OffsetsFault(Exception):
    """A fault in JSON: the hint of an OptionError, or part of a MalformedOffsets."""


_TOPIC_ID_SEPARATOR = "@"  # not allowed in topic names


def offsets_by_topic(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({})
) -> dict[str, dict[str, int]]:
    """Return `{"topic": {"0": 23}, "topic@<id>": {}}`, with topics sorted and partitions ordered by number.

    Spark compares the offsets of a stream as text, so equal offsets must have equal text.
    """
    result: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        result.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return result | {f"{topic}{_TOPIC_ID_SEPARATOR}{uuid_to_text(id_)}": {} for topic, id_ in sorted(topic_ids.items())}


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _OffsetsFault(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise _OffsetsFault("nested too deeply") from None
    except ValueError:  # an integer with more digits than Python converts
        raise _OffsetsFault("a number is too large") from None


def _no_constant(name: str) -> NoReturn:
    raise _OffsetsFault(f"{name} is not a whole number")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, member in members:
        if key in seen:
            if (type(seen[key]) is str) != (type(member) is str):
                raise _OffsetsFault(f"{key!r} has both a topic-level offset and offsets by partition")
            raise _OffsetsFault(f"{key!r} is given twice")
        seen[key] = member
    return seen


def _members(value: Any, what: str) -> Collection[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise _OffsetsFault(f"{what} must be a JSON object")
    return value.items()


def _topics(value: Any) -> Collection[tuple[str, Any]]:
    topics = _members(value, "the topics")
    for topic, _ in topics:
        if not valid_topic_name(topic):
            raise _OffsetsFault(f"{topic!r} is not a legal topic name")
    return topics


def _numbers_by_topic(value: Any, what: str) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _topics(value):
        numbers |= _numbers_by_partition(topic, partitions, what)
    return numbers


def _numbers_by_partition(topic: str, value: Any, what: str) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    for partition, number in _members(value, f"the partitions of topic {topic!r}"):
        if not PARTITION_NUMBER.fullmatch(partition) or int(partition) > MAX_INT32:
            raise _OffsetsFault(f"{_short(partition)} is not a partition of topic {topic!r}")
        if type(number) is not int or not EARLIEST <= number <= MAX_INT64:
            raise _OffsetsFault(
                f"{_short(number)} is not {what} for {topic}-{partition}: "
                "a whole number from 0, or -1 latest, -2 earliest"
            )
        numbers[topic, int(partition)] = number
    return numbers


def _short(value: object) -> str:
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)  # ASCII: half a surrogate pair in a key cannot be printed
    return text if len(text) <= 40 else text[:37] + "..."


@contextmanager
def _explained(option: str, text: str, expected: str) -> Iterator[None]:
    """Raise a fault as an OptionError with the connector's message."""
    try:
        yield
    except _OffsetsFault as fault:
        what = f"Expected e.g. {expected}, got {' '.join(text.split())}"
        raise OptionError(what, hint=f"option '{option}': {fault}") from None


Offsets = dict[TopicPartition, int]
"""Next offsets of a stream. Only those at which a query begins may be -2 (earliest) or -1 (latest). Their JSON is that
of the Kafka source, so that one source can use a checkpoint of the other."""
JsonOffsets = dict[str, dict[str, int]]

_SHOWN = 200  # characters of a checkpoint in an error


def offsets_of(value: Any) -> Offsets:
    """Return the offsets of a checkpoint or of a query's progress, without topic IDs.

    value: their JSON, or the parsed JSON that Spark passes. Raises MalformedOffsets.
    """
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        if isinstance(parsed, Mapping):
            parsed = {topic: partitions for topic, partitions in parsed.items() if _topic_id(topic) is None}
        return _numbers_by_topic(parsed, "an offset")
    except (_OffsetsFault, ValueError, RecursionError) as fault:
        why = fault if isinstance(fault, _OffsetsFault) else "not JSON"
        text = value if isinstance(value, str) else json.dumps(value)
        raise MalformedOffsets(
            f"the query's offsets cannot be used: {why}: expected e.g. "
            '{"topicA":{"0":23,"1":345},"topicB":{"0":7}}, '
            f"got {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}",
            hint="the files in the checkpoint's directory offsets/ hold them, a line for each source of the query; is "
            "it the checkpoint of this query?",
        ) from None


def topic_ids_of(offsets: Mapping[str, Any]) -> dict[str, uuid.UUID]:
    """Return the topic IDs in the offsets of a checkpoint, by topic. The Kafka source and older Kafka have none."""
    return dict(found for member in offsets if (found := _topic_id(member)) is not None)


def _topic_id(member: str) -> tuple[str, uuid.UUID] | None:
    """Return (topic, topic id) if a member's name is `topic@id`."""
    topic, _, text = member.partition(_TOPIC_ID_SEPARATOR)
    try:
        return (topic, uuid_from_text(text)) if valid_topic_name(topic) else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions that a read is subscribed to (Spark: `ConsumerStrategy`).

    By default those of every topic that is not internal, which the connector cannot express.

    Attributes:
        topics: Names of topics.
        pattern: Regular expression that is searched for in the names of topics, as in the connector.
        partitions: Single partitions.
        said: False if no option names a subscription, as for the directory of a single partition.
    """

    topics: tuple[str, ...] | None = None
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] | None = None
    said: bool = True

    @property
    def regex(self) -> re.Pattern[str]:
        # Java's \\d and \\w match ASCII only, unless a flag says otherwise.
        return re.compile(self.pattern, re.ASCII)

    @property
    def named_topics(self) -> frozenset[str]:
        """Topics that are given by name, existing or not; none for a pattern."""
        return frozenset(self.topics or ()).union(topic for topic, _ in self.partitions or ())

    def names(self, tp: TopicPartition) -> bool:
        """Return True if the partition, or its topic, is given by name."""
        return tp in self.partitions if self.partitions is not None else tp[0] in (self.topics or ())


NOT_SAID = Subscription(said=False)


def subscribed_topics(name: str, text: str) -> Subscription:
    """Parse `topicA,topicB`."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise OptionError(f"No topics to subscribe to as specified value for option '{name}' is '{text}'")
    return Subscription(topics=names)


def topic_pattern(name: str, text: str) -> Subscription:
    """Parse a regular expression.

    Java and Python agree on all that topic names need. Constructs that only Java has are refused.
    """
    if not text:
        raise OptionError(f"Pattern to subscribe is empty as specified value for option '{name}' is '{text}'")
    subscribed = Subscription(pattern=text)
    try:
        with warnings.catch_warnings():
            # Python warns of [a&&b], which has another meaning than in Java.
            warnings.simplefilter("error", FutureWarning)
            _ = subscribed.regex
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise OptionError(
            f"option '{name}' is not a regular expression that can be used here: '{text}': {error}",
            hint="it is read by Python's re: \\p{...}, \\Q...\\E, (?<name>...) and [a&&b] of Java are not known",
        ) from None
    return subscribed


def assigned(name: str, text: str) -> Subscription:
    """Parse `{"topicA":[0,1]}`. The partitions are sorted."""
    if not text.startswith("{"):
        raise OptionError(f"No topicpartitions to assign as specified value for option '{name}' is '{text}'")
    with _explained(name, text, '{"topicA":[0,1],"topicB":[0,1]}'):
        result: list[TopicPartition] = []
        for topic, partitions in _topics(_load(text)):
            if type(partitions) is not list:
                raise _OffsetsFault(f"topic {topic!r} needs a list of partitions")
            for partition in partitions:
                if type(partition) is not int or not 0 <= partition <= MAX_INT32:
                    raise _OffsetsFault(f"{_short(partition)} is not a partition of topic {topic!r}")
                result.append((topic, partition))
        if len(set(result)) != len(result):
            raise _OffsetsFault("a partition is given twice")
        return Subscription(partitions=tuple(sorted(result)))


def all_topics(name: str, text: str) -> Subscription:
    """Parse a boolean: True subscribes to every topic that is not internal."""
    return Subscription(said=boolean(name, text))


def bound_by_offset(name: str, text: str) -> Bound:
    """Parse `earliest` or `latest`, in any case, or `{"topicA":{"0":23,"1":-1},"topicB":"latest"}`."""
    if text.lower() in _WHOLE_TOPIC:
        return Bound(_WHOLE_TOPIC[text.lower()])
    with _explained(name, text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'):
        offsets: dict[TopicPartition, int] = {}
        topics: dict[str, int] = {}
        for topic, value in _topics(_load(text)):
            if type(value) is str:
                if value.lower() not in _WHOLE_TOPIC:
                    raise _OffsetsFault(f"topic {topic!r} needs offsets by partition, 'earliest' or 'latest'")
                topics[topic] = _WHOLE_TOPIC[value.lower()]
            else:
                offsets |= _numbers_by_partition(topic, value, "an offset")
        return Bound(partitions=offsets, topics=topics)


def bound_by_timestamp(name: str, text: str) -> Bound:
    """Parse `{"topicA":{"0":1700000000000}}`: ms by partition."""
    with _explained(
        name, text, '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'
    ):
        return Bound(partitions=_numbers_by_topic(_load(text), "a timestamp"), by_time=True)


def bound_by_global_timestamp(name: str, text: str) -> Bound:
    """Parse ms since 1970. As in Kafka's ListOffsets, -1 means latest and -2 earliest."""
    hint = f"option '{name}' is in milliseconds since 1970-01-01 UTC"
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) > MAX_INT64:
        raise OptionError(f"Expected a single long value, got {' '.join(text.split())}", hint=hint)
    if int(text) < -2:
        raise OptionError(f"Expected a timestamp from 0, or -1 latest, -2 earliest, got {text}", hint=hint)
    return Bound(int(text), by_time=True)


def assigned_partitions(
    subscription: Subscription, present: Iterable[TopicPartition], may_be_gone: Collection[str] = ()
) -> list[TopicPartition]:
    """Return the existing partitions that a read is subscribed to, sorted.

    As in the connector, `subscribe` and `subscribePattern` never read internal topics, and partitions of `assign` that
    do not exist are left out. Unlike there, `assign` reads internal topics.

    Args:
        subscription: The subscription.
        present: The existing partitions.
        may_be_gone: Topics that may be missing.

    Raises:
        UnknownPartition: For any other missing topic that the subscription names.
    """
    available = set(present)
    topics = {topic for topic, _ in available}
    if unknown := sorted(subscription.named_topics - topics.union(may_be_gone)):
        hint = f"it holds {cut_text(sorted(topics.union(may_be_gone))) or 'no topic at all'}"
        if near := list(dict.fromkeys(name for topic in unknown for name in similar_topics(topic, topics))):
            hint = f"did you mean {cut_text(near)}? {hint[0].upper()}{hint[1:]}"
        raise UnknownPartition(f"the log directory holds no topic {cut_text(unknown)}", hint=hint)
    if subscription.partitions is not None:
        return sorted(available.intersection(subscription.partitions))
    named, regex = topics if subscription.topics is None else subscription.topics, subscription.regex
    wanted = {topic for topic in named if not is_internal(topic) and regex.search(topic)}
    return sorted(tp for tp in available if tp[0] in wanted)


def unmatched(subscription: Subscription, present: Iterable[TopicPartition], paths: Sequence[str]) -> str | None:
    """Return a warning about the part of a subscription that matches nothing, with the existing topics or partitions.

    None if all of it matches. It is not an error, because the connector reads nothing then without an error.
    """
    available = set(present)
    topics = sorted({topic for topic, _ in available})
    where, holds = ", ".join(paths), f"it holds {cut_text(topics) or 'no topic at all'}"
    if subscription.partitions is not None:
        if missing := [tp for tp in subscription.partitions if tp not in available]:
            of_topics = {topic for topic, _ in missing}
            there = [tp_text(tp) for tp in sorted(available) if tp[0] in of_topics]
            return (
                f"option 'assign': {where} holds no {cut_text([tp_text(tp) for tp in missing])}, which are left out; "
                f"it holds {cut_text(there) or 'no partition of ' + ', '.join(sorted(of_topics))}"
            )
        return None
    if subscription.topics is not None:
        if missing_topics := [topic for topic in subscription.topics if topic not in topics]:
            return f"option 'subscribe': {where} holds no topic {cut_text(missing_topics)}; {holds}"
        if internal := [topic for topic in subscription.topics if is_internal(topic)]:
            return (
                f"option 'subscribe' never reads internal topics, as in Spark's Kafka source: {', '.join(internal)} is "
                "left out; assign reads it, and so do tables (docs/tables.md)"
            )
        return None
    if any(not is_internal(topic) and subscription.regex.search(topic) for topic in topics):
        return None
    if subscription.pattern:
        return f"option 'subscribePattern': '{subscription.pattern}' matches no topic in {where}; {holds}"
    return f"{where} holds no topic that is not internal" if topics else f"{where} holds no topic"
