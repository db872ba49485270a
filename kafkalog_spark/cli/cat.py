"""kafkalog-cat: records of Kafka log directories, printed as kcat prints them, with no broker running."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from kafkalog_spark import exit_codes
from kafkalog_spark.cli import common, decoded_parts, record_json
from kafkalog_spark.cli.progress_bar import Progress
from kafkalog_spark.cli.record_json import Shown, json_lines
from kafkalog_spark.cli.record_output import RecordFormat, unescaped
from kafkalog_spark.errors import DataLoss, KafkalogError, NotALogDirectory, OptionError, UnknownPartition, with_hint
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64
from kafkalog_spark.format.names import similar_topics
from kafkalog_spark.log.decode.scan_request import RecordPredicate, ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.missing_segments import explain_log
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from kafkalog_spark.log.read.state_files import readable_meta_properties
from kafkalog_spark.log.read.tail import tail_start
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from kafkalog_spark.options import day_if_seconds

if TYPE_CHECKING:
    from kafkalog_spark.source.live_log import LiveLog


class Start(NamedTuple):
    """Where reading a partition begins. value: an offset, how many of the last records, or ms."""

    where: Literal["beginning", "end", "offset", "tail", "timestamp"] = "beginning"
    value: int = 0


@dataclass(frozen=True, slots=True)
class CatOptions:
    """topics: in the order given. partitions: empty for all. stop_ms: a partition ends at its first record with such a
    timestamp or a later one. request: which records, past damage or not. count: how many at most, None for all."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    start: Start
    stop_ms: int | None
    request: ScanRequest
    count: int | None
    follow: bool


def bounds_of(texts: Sequence[str]) -> tuple[Start, int | None]:
    """(start, stop in ms) of -o as kcat reads it: beginning, end, N, -N, s@MS, e@MS. Raises OptionError."""
    start: Start | None = None
    stop: int | None = None
    for text in texts:
        if text.startswith("e@"):
            if stop is not None:
                raise OptionError("-o e@ is given twice")
            stop = moment_ms(text[2:], "-o e@")
            continue
        if start is not None:
            raise OptionError(f"-o is given twice: a read has one start, got '{text}', too")
        start = _start(text)
    return start or Start(), stop


def _start(text: str) -> Start:
    if text.startswith("s@"):
        return Start("timestamp", moment_ms(text[2:], "-o s@"))
    if text in ("beginning", "end"):
        return Start("end" if text == "end" else "beginning")
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        if abs(number) > MAX_INT64:
            raise OptionError(f"-o {text} is no offset: offsets have 64 bits")
        return Start("tail", -number) if text.startswith("-") else Start("offset", number)
    hint = "committed offsets: table consumer_offsets, docs/tables.md" if text == "stored" else None
    raise OptionError(f"-o takes beginning, end, N, -N, s@TIME or e@TIME, got '{text}'", hint=hint)


def moment_ms(text: str, name: str) -> int:
    """A time as ms: a number of ms, or ISO 8601, in UTC where it does not say otherwise. Raises OptionError."""
    if re.fullmatch(r"-?\d{6,}", text):
        return max(min(int(text), MAX_INT64), MIN_INT64)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{name} takes a time such as 2026-01-31T09:00, or ms since 1970 (six digits at least), got '{text}'"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def note_about_seconds(times: Mapping[str, int | None]) -> str | None:
    """Return a note about the first time that looks like seconds. `times`: in ms, by option."""
    for name, ms in times.items():
        if (day := day_if_seconds(ms)) is not None:
            return f"{name} is {day}: a number is in milliseconds, not in seconds"
    return None


def wanted_of(
    key: str | None, key_hex: str | None, key_prefix: str | None, value_contains: str | None, header: str | None
) -> RecordPredicate:
    """The conditions of a search, as the options where.* of a read. Raises OptionError."""
    if key is not None and key_hex is not None:
        raise OptionError("--key and --key-hex are both given: a record has one key")
    try:
        exact = None if key_hex is None else bytes.fromhex(key_hex)
    except ValueError:
        raise OptionError(f"--key-hex takes pairs of hexadecimal digits, got '{key_hex}'") from None
    name, equals, value = (None, "", "") if header is None else header.partition("=")
    texts = key, key_prefix, value_contains, name, value if equals else None
    of_key, *others = (None if text is None else text.encode() for text in texts)
    return RecordPredicate(exact if of_key is None else of_key, *others)


@dataclass(frozen=True, slots=True)
class Followed:
    """How far a partition was read. next_offset: where it goes on, past `end` where the offset asked for is not written
    yet. end: where readers had to stop at the last look. topic_id: None before Kafka 2.8. floor: the offset asked for,
    below which nothing is printed even when the log is truncated. was_gone: it was not there at the last look."""

    next_offset: int
    end: int
    topic_id: uuid.UUID | None
    floor: int = 0
    was_gone: bool = False


@dataclass
class CatReader:
    """Reads partition by partition. on_error: called with damage that is passed over, and with records that went away.
    on_progress: with a partition's name, offsets done, and known in all. Raises UnknownPartition."""

    dirs: LogDirs
    options: CatOptions
    columns: tuple[str, ...]
    on_error: Callable[[KafkalogError], None]
    on_progress: Callable[[str, int, int], None]
    on_note: Callable[[str], None] = lambda _: None
    followed: dict[TopicPartition, Followed] = field(default_factory=dict)
    partitions: list[TopicPartition] = field(default_factory=list)

    def __post_init__(self) -> None:
        dirs, options = self.dirs, self.options
        self.left = options.count
        self.request = replace(options.request, columns=self.columns)
        for topic in options.topics:
            partitions = dirs.topics.get(topic)
            if partitions is None:
                near = similar_topics(topic, dirs.topics)
                raise UnknownPartition(
                    f"topic {topic} is not in {', '.join(dirs.paths)}",
                    hint=(f"did you mean {', '.join(near)}? There are: " if near else "there are: ")
                    + (", ".join(list(dirs.topics)[:10]) or "no topics"),
                )
            for partition in options.partitions:
                if partition not in partitions:
                    raise UnknownPartition(
                        f"not in {', '.join(dirs.paths)} ({topic} has {', '.join(map(str, partitions))})",
                        topic_partition=f"{topic}-{partition}",
                    )
            chosen = options.partitions
            self.partitions += [(topic, number) for number in partitions if not chosen or number in chosen]

    def records(self) -> Iterator[pa.RecordBatch]:
        """Records in the log. Raises as scan_partition."""
        options = self.options
        past_damage, read_committed = options.request.drop_malformed, self.request.read_committed
        floor = options.start.value if options.start.where == "offset" else 0  # below it nothing is asked for
        locations = self.dirs.chosen(self.partitions, pass_over_damage=past_damage)
        done = total = 0
        for tp in self.partitions:
            topic_id = locations[tp].topic_id() if options.follow else None
            log = locations[tp].open(pass_over_damage=past_damage)
            if missing := explain_log(log):
                self.on_note(f"records may be missing: {missing}")
            end = last_stable_offset(log) if read_committed else log.log_end_offset
            start = self._start(log, end, options.start)
            if floor >= end and options.start.where == "offset" and not options.follow:
                what = "its last stable offset is" if read_committed else "the log ends at offset"
                self.on_note(f"{log.name}: nothing to read at offset {floor}: {what} {end}")
            stop = None if options.stop_ms is None else offset_for_timestamp(log, options.stop_ms)
            stop = end if stop is None else min(stop, end)
            total += max(stop - start, 0)
            for rows in self._scan(log, start, stop):
                yield rows
                self.on_progress(log.name, done, total)
            done = total
            self.followed[tp] = Followed(max(end, start), end, topic_id, floor)
            if self.left == 0:
                return

    def _scan(self, log: PartitionLog, start: int, end: int) -> Iterator[pa.RecordBatch]:
        statistics = ScanStatistics()
        batches = scan_partition(log, start, end, self.request, statistics=statistics, on_loss=self.on_error)
        while self.left != 0:
            rows = next(batches, None)
            for error in statistics.dropped:
                self.on_error(error)
            statistics.dropped.clear()
            if rows is None:
                return
            if self.left is not None:
                rows = rows.slice(0, self.left)
                self.left -= rows.num_rows
            yield rows

    def _start(self, log: PartitionLog, end: int, start: Start) -> int:
        first = log.log_start_offset
        match start.where:
            case "tail":
                return tail_start(log, first, end, start.value, self.request) if start.value else end
            case "timestamp":
                offset = offset_for_timestamp(log, start.value)
                return end if offset is None else offset
            case "end":
                return end
        return max(first, start.value)

    def follow(
        self, paths: tuple[str, ...], storage: Mapping[str, str], wait: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        """Records written after `records`, forever, found as a stream finds them (LiveLogs); new partitions are read
        from their beginning. wait: called when there is nothing new; False ends it. storage: what --option says."""
        from kafkalog_spark.source.live_logs import LiveLogs
        from kafkalog_spark.source.options import parse_read_options

        options = {"paths": json.dumps(list(paths)), "subscribe": ",".join(self.options.topics), **storage}
        options["isolationLevel"] = "read_committed" if self.request.read_committed else "read_uncommitted"
        options["mode"] = "DROPMALFORMED" if self.request.drop_malformed else "FAILFAST"
        logs = LiveLogs(parse_read_options(options, streaming=True, quiet=True))
        while self.left != 0:
            seen = False
            live_logs = logs.look(may_be_gone=self.options.topics)
            for tp, live in live_logs.items():
                if self.options.partitions and tp[1] not in self.options.partitions:
                    continue
                start, floor = self._goes_on(tp, live)
                for rows in self._scan(live.log, start, live.readers_end):
                    seen = True
                    yield rows
                    if self.left == 0:
                        return
                self.followed[tp] = Followed(max(start, live.readers_end), live.readers_end, live.topic_id, floor)
            for tp in self.followed.keys() - live_logs.keys():
                self.followed[tp] = replace(self.followed[tp], was_gone=True)
            if not seen and not wait():
                return

    def _goes_on(self, tp: TopicPartition, live: LiveLog) -> tuple[int, int]:
        """(start, floor) of the next scan; on_error gets what was lost before it."""
        before = self.followed.get(tp)
        if before is None:
            return live.log_start, 0
        # Without ids, a topic that was deleted meanwhile does not come back; with them it may, moved between two disks.
        has_ids = before.topic_id is not None and live.topic_id is not None
        if before.topic_id != live.topic_id if has_ids else before.was_gone:
            what = f"the topic was deleted and created again; it goes on at the new one's offset {live.log_start}"
            self.on_error(DataLoss(what, topic_partition=live.log.name, offset=before.next_offset))
            return live.log_start, 0
        if live.readers_end < before.end:
            start = max(live.readers_end, before.floor)
            what = f"the log was truncated to offset {live.readers_end}; it goes on from offset {start}"
            self.on_error(DataLoss(what, topic_partition=live.log.name, offset=before.end))
            return start, before.floor
        return before.next_offset, before.floor


_LOOK_EVERY_S = 0.2
"""Seconds between two looks of --follow: below what a reader notices, and 1 % of a core with 100 partitions."""

_EXAMPLES = (
    ("kafkalog-cat /data/kafka-logs -t orders", "every value, a line each"),
    ("kafkalog-cat /data/kafka-logs -t orders -p 0 -o -10 -f json", "the last ten records of a partition, as kcat -J"),
    ("kafkalog-cat /data/kafka-logs -t orders -f '%t [%p] at %o: key %k: %s\\n'", "a format string as kcat's"),
    ("kafkalog-cat /data/kafka-logs -t orders --from 2026-01-01T09:00 --to 2026-01-01T10:00", "an hour of them, UTC"),
    ("kafkalog-cat /data/kafka-logs -t orders --key user-42 -c 1", "the first record with that key"),
    ("kafkalog-cat /data/kafka-logs -t orders -o end --follow", "what is written from now on"),
)
_FORMATS = """format:
  raw                  values, a line each
  json                 kcat -J: topic, partition, offset, tstype, ts, broker, headers, key, payload
  %s %k                value, key
  %S %K %R             length of value and key (-1: null); length of value as 4 bytes
  %t %p %o %T %h %%    topic, partition, offset, timestamp in ms, headers, a percent sign
  \\n \\t \\r \\xNN \\NNN   control characters"""

Text = Callable[[pa.RecordBatch], "pa.Buffer | bytes"]


def parser() -> argparse.ArgumentParser:
    parser = common.command_parser(
        "kafkalog-cat",
        "Print records of Kafka log directories as kcat prints those of a broker. Changes nothing.",
        "a log directory, a partition's directory, or a URL",
        _EXAMPLES,
        "0 all was read, 1 something could not be, 2 wrong usage",
        f"{_FORMATS}\n\n",
    )
    parser.add_argument("-t", "--topic", action="append", required=True, metavar="TOPIC", help="may be given again")
    parser.add_argument("-p", "--partition", action="append", type=int, default=[], metavar="N", help="all by default")
    parser.add_argument(
        "-o", "--offset", action="append", default=[], metavar="OFFSET",
        help="beginning (default), end, N, -N (the last N records of each partition), s@TIME; and e@TIME to stop at",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="since", metavar="TIME", help="records from then on: 2026-01-01T09:00 (UTC), or ms"
    )
    parser.add_argument("--to", dest="until", metavar="TIME", help="records before that")
    parser.add_argument("--key", metavar="TEXT", help="records with this key")
    parser.add_argument("--key-hex", metavar="DIGITS", help="the same, in hexadecimal digits")
    parser.add_argument("--key-prefix", metavar="TEXT", help="records whose keys begin with it")
    parser.add_argument("--value-contains", metavar="TEXT", help="records whose values contain it")
    parser.add_argument("--header", metavar="NAME[=VALUE]", help="records with this header")
    parser.add_argument(
        "-f", "--format", default="raw", metavar="FORMAT", help="raw (default), json, or tokens: see below"
    )
    parser.add_argument(
        "-s", "--serialized", action="append", default=[], metavar="PART=FORMAT",
        help="with -f json: values (value=json, value=avro ...) or keys of a format are printed as JSON; its options: "
        "--option value.schema=order.avsc (docs/typed.md)",
    )  # fmt: skip
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="after a record of raw and json; \\n")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="of raw: print keys, and this after each")
    parser.add_argument("-Z", "--null", action="store_true", help="print NULL for keys and values that are null")
    parser.add_argument("-c", "--count", type=int, metavar="N", help="stop after so many records")
    parser.add_argument("--follow", action="store_true", help="wait for what is written, until -c or Ctrl-C")
    parser.add_argument(
        "--isolation-level", choices=("read_uncommitted", "read_committed"), default="read_uncommitted",
        help="read_committed: without aborted transactions, up to the last stable offset; %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--past-damage", action="store_true", help="go on after damage, say on stderr what was left out"
    )
    return parser


@common.command("kafkalog-cat")
def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        options = _options(arguments)
        paths = tuple(arguments.paths)
        of_records = None if arguments.format == "json" else _record_format(arguments)
        given = common.named_options(arguments.option)
        of_formats = {name: value for name, value in given.items() if name.startswith(("value.", "key."))}
        of_storage = {name: value for name, value in given.items() if name not in of_formats}
        dirs = LogDirs.open(paths, *common.storage_and_tier(of_storage))
        shown: Mapping[str, Shown] = {}
        if arguments.serialized or of_formats:
            if arguments.format != "json":
                raise OptionError("-s is of -f json: raw and tokens print the bytes as they are")
            shown = decoded_parts.shown_parts(arguments.serialized, of_formats, options.topics, dirs)
        columns: tuple[str, ...]
        text: Text
        if of_records is None:
            nodes = (readable_meta_properties(root.store, root.path).node_id for root in dirs.roots)
            broker = next((node for node in nodes if node is not None), -1)
            delimiter = unescaped(arguments.delimiter)
            columns, text = record_json.COLUMNS, lambda rows: json_lines(rows, broker, delimiter, shown)
        else:
            columns, text = of_records.columns, of_records.text_of
        start = options.start.value if options.start.where == "timestamp" else None
        times = {"-o s@": start, "-o e@": options.stop_ms, "--from": options.request.timestamp_from_ms}
        if note := note_about_seconds({**times, "--to": options.request.timestamp_until_ms}):
            _say(note)
        failures: list[KafkalogError] = []

        def leave_out(error: KafkalogError) -> None:
            failures.append(error)
            _say(f"left out: {error}")

        with Progress(
            show=not options.follow and not sys.stdout.isatty(), unit=" offsets", unit_scale=True, desc="reading"
        ) as progress:
            reader = CatReader(dirs, options, columns, leave_out, progress.step, _say)
            _print(reader.records(), text, flush=options.follow)
        if options.follow:
            _print(reader.follow(paths, of_storage, _wait), text, flush=True)
    except (NotALogDirectory, OptionError, UnknownPartition):
        raise
    except KafkalogError as error:
        sys.stdout.flush()
        _say(with_hint(str(error), "--past-damage goes on after it"))
        return exit_codes.FAILED
    return exit_codes.FAILED if failures else exit_codes.OK


def _say(text: str) -> None:
    print(f"kafkalog-cat: {text}", file=sys.stderr)


def _wait() -> bool:
    time.sleep(_LOOK_EVERY_S)
    return True


def _options(arguments: argparse.Namespace) -> CatOptions:
    if arguments.count is not None and arguments.count < 0:
        raise OptionError(f"-c takes a number of records, got {arguments.count}")
    start, stop_ms = bounds_of(arguments.offset)
    if arguments.follow and stop_ms is not None:
        raise OptionError("-o e@TIME and --follow are both given: one stops, the other does not")
    request = ScanRequest(
        columns=(),
        timestamp_from_ms=MIN_INT64 if arguments.since is None else moment_ms(arguments.since, "--from"),
        timestamp_until_ms=MAX_INT64 if arguments.until is None else moment_ms(arguments.until, "--to"),
        read_committed=arguments.isolation_level == "read_committed",
        drop_malformed=arguments.past_damage,
        wanted=wanted_of(
            arguments.key, arguments.key_hex, arguments.key_prefix, arguments.value_contains, arguments.header
        ),
    )
    topics, partitions = tuple(dict.fromkeys(arguments.topic)), tuple(dict.fromkeys(arguments.partition))
    return CatOptions(topics, partitions, start, stop_ms, request, arguments.count, arguments.follow)


def _record_format(arguments: argparse.Namespace) -> RecordFormat:
    """Of -f raw, or of its tokens. Raises OptionError."""
    null = b"NULL" if arguments.null else b""
    if arguments.format != "raw":
        return RecordFormat.of(arguments.format, null)
    keys = () if arguments.key_delimiter is None else ("k", unescaped(arguments.key_delimiter))
    return RecordFormat((*keys, "s", unescaped(arguments.delimiter)), null)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but newlines and tabs."""


def _for_terminal(data: pa.Buffer | bytes) -> bytes:
    """Output with control characters escaped, such as `\\x1b`: a terminal would obey those in keys and values."""
    text = bytes(data).decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text).encode()


def _print(batches: Iterator[pa.RecordBatch], text: Text, *, flush: bool) -> None:
    out = sys.stdout.buffer
    is_terminal = sys.stdout.isatty()
    for rows in batches:
        data = text(rows)
        out.write(_for_terminal(data) if is_terminal else data)
        if flush:
            out.flush()
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
