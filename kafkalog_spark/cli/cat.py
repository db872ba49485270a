"""Command kafkalog-cat, which prints records of Kafka log directories in the formats of kcat."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from kafkalog_spark import exit_codes
from kafkalog_spark.cli import decoded_parts, record_json
from kafkalog_spark.cli.cat_options import CatOptions, cat_options, note_about_seconds
from kafkalog_spark.cli.cat_reader import CatReader
from kafkalog_spark.cli.command import command, command_parser
from kafkalog_spark.cli.progress_bar import Progress
from kafkalog_spark.cli.record_format import RecordFormat, unescaped
from kafkalog_spark.cli.record_json import JsonColumn, json_lines
from kafkalog_spark.cli.storage_arguments import named_options, storage_and_tier
from kafkalog_spark.errors import KafkalogError, NotALogDirectory, OptionError, UnknownPartition, with_hint
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.state_files import readable_meta_properties

_POLL_SECONDS = 0.2
"""Seconds between two polls of --follow: short for a human, and little work for 100 partitions."""

_EXAMPLES = (
    ("kafkalog-cat /data/kafka-logs -t orders", "every value, one per line"),
    ("kafkalog-cat /data/kafka-logs -t orders -p 0 -o -10 -f json", "the last ten records of a partition, as kcat -J"),
    ("kafkalog-cat /data/kafka-logs -t orders -f '%t [%p] at %o: key %k: %s\\n'", "a format string as kcat's"),
    ("kafkalog-cat /data/kafka-logs -t orders --from 2026-01-01T09:00 --to 2026-01-01T10:00", "an hour of them, UTC"),
    ("kafkalog-cat /data/kafka-logs -t orders --key user-42 -c 1", "the first record with that key"),
    ("kafkalog-cat /data/kafka-logs -t orders -o end --follow", "records that are written from now on"),
)
_FORMATS = """format:
  raw                  values, one per line
  json                 kcat -J: topic, partition, offset, tstype, ts, broker, headers, key, payload
  %s %k                value, key
  %S %K %R             length of value and key (-1: null); length of value as 4 bytes
  %t %p %o %T %h %%    topic, partition, offset, timestamp in ms, headers, a percent sign
  \\n \\t \\r \\xNN \\NNN   control characters"""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters except newlines and tabs."""

Text = Callable[[pa.RecordBatch], "pa.Buffer | bytes"]
"""Formatter of a batch of records."""


def parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "kafkalog-cat",
        "Print records of Kafka log directories as kcat prints those of a broker. Changes nothing.",
        "a log directory, a partition's directory, or a URL",
        _EXAMPLES,
        "0 everything was read, 1 some records could not be read, 2 wrong usage",
        f"{_FORMATS}\n\n",
    )
    parser.add_argument("-t", "--topic", action="append", required=True, metavar="TOPIC", help="may be repeated")
    parser.add_argument("-p", "--partition", action="append", type=int, default=[], metavar="N", help="all by default")
    parser.add_argument(
        "-o", "--offset", action="append", default=[], metavar="OFFSET",
        help="beginning (default), end, N, -N (the last N records of each partition) or s@TIME; also e@TIME to stop at",
    )  # fmt: skip
    parser.add_argument(
        "--from",
        dest="since",
        metavar="TIME",
        help="records from this time on: 2026-01-01T09:00 (UTC), or ms",
    )
    parser.add_argument("--to", dest="until", metavar="TIME", help="records before this time")
    parser.add_argument("--key", metavar="TEXT", help="records with this key")
    parser.add_argument("--key-hex", metavar="DIGITS", help="records with this key, in hexadecimal digits")
    parser.add_argument("--key-prefix", metavar="TEXT", help="records whose key begins with this")
    parser.add_argument("--value-contains", metavar="TEXT", help="records whose value contains this")
    parser.add_argument("--header", metavar="NAME[=VALUE]", help="records with this header")
    parser.add_argument(
        "-f", "--format", default="raw", metavar="FORMAT", help="raw (default), json, or tokens: see below"
    )
    parser.add_argument(
        "-s", "--serialized", action="append", default=[], metavar="PART=FORMAT",
        help="with -f json: print values (value=json, value=avro ...) or keys decoded, as JSON; options of the format: "
        "--option value.schema=order.avsc (docs/typed.md)",
    )  # fmt: skip
    parser.add_argument(
        "-D", "--delimiter", default="\\n", metavar="TEXT", help="text after each record of raw and json; \\n"
    )
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="with raw: print keys, each followed by this")
    parser.add_argument("-Z", "--null", action="store_true", help="print NULL for keys and values that are null")
    parser.add_argument("-c", "--count", type=int, metavar="N", help="stop after this many records")
    parser.add_argument("--follow", action="store_true", help="wait for new records, until -c or Ctrl-C")
    parser.add_argument(
        "--isolation-level", choices=("read_uncommitted", "read_committed"), default="read_uncommitted",
        help="read_committed: without aborted transactions, up to the last stable offset; %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--past-damage", action="store_true", help="continue after damage, and report on stderr what was left out"
    )
    return parser


@command("kafkalog-cat")
def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    options = cat_options(arguments)
    record_format = None if arguments.format == "json" else _record_format(arguments)
    paths = tuple(arguments.paths)
    storage_options, format_options = _split_options(arguments.option)
    try:
        dirs = LogDirs.open(paths, *storage_and_tier(storage_options))
        decoded = _decoded_columns(arguments, format_options, options.topics, dirs)
        if record_format is None:
            output = _json_output(dirs, unescaped(arguments.delimiter), decoded)
        else:
            output = _Output(record_format.columns, record_format.text_of)
        if note := _seconds_note(options):
            _print_note(note)
        is_complete = _print_records(dirs, paths, options, output, storage_options)
    except (NotALogDirectory, OptionError, UnknownPartition):
        raise  # wrong usage
    except KafkalogError as error:
        sys.stdout.flush()
        _print_note(with_hint(str(error), "--past-damage continues after it"))
        return exit_codes.FAILED
    return exit_codes.OK if is_complete else exit_codes.FAILED


class _Output(NamedTuple):
    """Columns of the records to read, and the function that formats them."""

    columns: tuple[str, ...]
    text: Text


def _record_format(arguments: argparse.Namespace) -> RecordFormat:
    """Return the format of -f raw or of a format string. Raises OptionError."""
    null = b"NULL" if arguments.null else b""
    if arguments.format != "raw":
        return RecordFormat.of(arguments.format, null)
    keys = () if arguments.key_delimiter is None else ("k", unescaped(arguments.key_delimiter))
    return RecordFormat((*keys, "s", unescaped(arguments.delimiter)), null)


def _split_options(texts: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values of --option by name: those of the storage, and those of the formats of values and keys."""
    options = named_options(texts)
    format_options = {name: value for name, value in options.items() if name.startswith(("value.", "key."))}
    return {name: value for name, value in options.items() if name not in format_options}, format_options


def _decoded_columns(
    arguments: argparse.Namespace, format_options: Mapping[str, str], topics: tuple[str, ...], dirs: LogDirs
) -> Mapping[str, JsonColumn]:
    """Return the functions that decode values and keys. Raises OptionError if the output is not JSON."""
    if not arguments.serialized and not format_options:
        return {}
    if arguments.format != "json":
        raise OptionError("-s requires -f json: raw and tokens print the bytes as they are")
    return decoded_parts.part_columns(arguments.serialized, format_options, topics, dirs)


def _json_output(dirs: LogDirs, delimiter: bytes, decoded: Mapping[str, JsonColumn]) -> _Output:
    node_ids = (readable_meta_properties(root.store, root.path).node_id for root in dirs.roots)
    broker = next((node_id for node_id in node_ids if node_id is not None), -1)
    return _Output(record_json.COLUMNS, lambda rows: json_lines(rows, broker, delimiter, decoded))


def _seconds_note(options: CatOptions) -> str | None:
    """Return a note if a time of the command line looks like seconds instead of ms."""
    times = {
        "-o s@": options.start.value if options.start.where == "timestamp" else None,
        "-o e@": options.stop_ms,
        "--from": options.request.timestamp_from_ms,
        "--to": options.request.timestamp_until_ms,
    }
    return note_about_seconds(times)


def _print_records(
    dirs: LogDirs,
    paths: tuple[str, ...],
    options: CatOptions,
    output: _Output,
    storage_options: Mapping[str, str],
) -> bool:
    """Print the records, and with --follow also those that are written later.

    Returns:
        False if damaged records were left out; each was reported on stderr.
    """
    failures: list[KafkalogError] = []

    def leave_out(error: KafkalogError) -> None:
        failures.append(error)
        _print_note(f"left out: {error}")

    show_progress = not options.follow and not sys.stdout.isatty()
    with Progress(show=show_progress, unit=" offsets", unit_scale=True, desc="reading") as progress:
        reader = CatReader(dirs, options, output.columns, leave_out, progress.step, _print_note)
        _print_batches(reader.records(), output.text, flush_each=options.follow)
    if options.follow:
        _print_batches(reader.follow(paths, storage_options, _wait), output.text, flush_each=True)
    return not failures


def _print_batches(batches: Iterator[pa.RecordBatch], text: Text, *, flush_each: bool) -> None:
    out = sys.stdout.buffer
    is_terminal = sys.stdout.isatty()
    for rows in batches:
        data = text(rows)
        out.write(_escape_for_terminal(data) if is_terminal else data)
        if flush_each:
            out.flush()
    out.flush()


def _escape_for_terminal(data: pa.Buffer | bytes) -> bytes:
    """Escape control characters, such as `\\x1b`: a terminal would execute those in keys and values."""
    text = bytes(data).decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text).encode()


def _wait() -> bool:
    time.sleep(_POLL_SECONDS)
    return True


def _print_note(text: str) -> None:
    print(f"kafkalog-cat: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
