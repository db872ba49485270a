"""Command kafkalog-schema, which infers a schema for the JSON values of a topic from its last records."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence

from kafkalog_spark.cli.command import command, command_parser
from kafkalog_spark.cli.storage_arguments import storage_of
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.exit_codes import FAILED, OK
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.typed.ddl import ddl_of_schema
from kafkalog_spark.typed.json.avro_schema import avro_of_schema
from kafkalog_spark.typed.json.infer import infer_schema

_EXAMPLES = (
    ("kafkalog-schema /data/kafka-logs -t orders", "as Spark's DDL"),
    ("kafkalog-schema /data/kafka-logs -t orders -n 10000 -f avro", "as Avro, from 10,000 records of each partition"),
)


def parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "kafkalog-schema",
        "Print a schema for the JSON values of a topic, inferred from the last records of each partition by "
        "the rules of Spark's own inference. Changes nothing.",
        "a log directory, a partition's directory, or a URL",
        _EXAMPLES,
        "0 the schema is printed, 1 the values are not JSON objects, 2 wrong usage",
    )
    parser.add_argument("-t", "--topic", required=True, metavar="TOPIC")
    parser.add_argument("--key", action="store_true", help="schema of keys instead of values")
    parser.add_argument(
        "-n",
        "--records",
        type=int,
        default=1000,
        metavar="N",
        help="records of each partition; %(default)s",
    )
    parser.add_argument("-f", "--format", choices=("ddl", "avro"), default="ddl", help="%(default)s")
    return parser


@command("kafkalog-schema")
def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    column = "key" if arguments.key else "value"
    if arguments.records < 1:
        raise OptionError(f"-n takes a number of records, got {arguments.records}")
    dirs = LogDirs.open(tuple(arguments.paths), *storage_of(arguments))
    sample = _values(dirs, arguments.topic, column, arguments.records)
    first = next(sample, None)  # outside of the try block: an unknown topic is wrong usage
    try:
        schema, count, others = infer_schema(itertools.chain([first], sample))
        if arguments.format == "avro":
            text = json.dumps(avro_of_schema(schema, _avro_name(arguments.topic)), indent=2)
        else:
            text = ddl_of_schema(schema)
    except KafkalogError as error:
        print(f"kafkalog-schema: {error}", file=sys.stderr)
        return FAILED
    print(text)
    if others:
        print(f"kafkalog-schema: {others} of {count} {column}s are not JSON objects", file=sys.stderr)
    return OK


def _avro_name(topic: str) -> str:
    """Return the topic as a name of an Avro record, which has letters, digits and underscores."""
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return f"_{name}" if name[:1].isdigit() else name


def _values(dirs: LogDirs, topic: str, column: str, records: int) -> Iterator[bytes | None]:
    for batch in dirs.scan(topic, tail=records, columns=(column,)):
        yield from batch.column(0).to_pylist()


if __name__ == "__main__":
    sys.exit(main())
