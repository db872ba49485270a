"""Command kafkalog-report, which writes an HTML report about log directories."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from kafkalog_spark import exit_codes
from kafkalog_spark.cli.atomic_file import write_atomically
from kafkalog_spark.cli.command import command, command_parser
from kafkalog_spark.cli.progress_bar import Progress
from kafkalog_spark.cli.storage_arguments import storage_of
from kafkalog_spark.errors import OptionError, install_hint
from kafkalog_spark.log.log_dir import LogDirs

_EXAMPLES = (
    ("kafkalog-report /data/kafka-logs -o report.html", "everything except keys"),
    ("kafkalog-report /data/kafka-logs -o report.html --top-keys orders", "also the most frequent keys of orders"),
    ("kafkalog-report /data/disk1 /data/disk2 -o - > report.html", "two directories, to stdout"),
)


def parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "kafkalog-report",
        "Write one HTML file about Kafka log directories: topics by size and rate, segments, compression, "
        "gaps and retention, producers, open transactions, consumer lag, findings. Changes nothing else.",
        "a log directory (log.dirs), one partition's directory, or a URL",
        _EXAMPLES,
        "0 the report is written, 1 it cannot be written, 2 wrong usage",
    )
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="- for stdout; %(default)s")
    parser.add_argument("--title", default="Kafka log report", help="%(default)s")
    parser.add_argument(
        "--top-keys", action="append", default=[], metavar="TOPIC", help="count keys, which reads the topic's records"
    )
    parser.add_argument("--no-check", action="store_true", help="leave out the findings; takes half the time")
    return parser


@command("kafkalog-report")
def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    created_ms = time.time_ns() // 1_000_000
    try:
        import vl_convert  # noqa: F401 - an import error must occur before the logs are read

        from kafkalog_spark.report.page import page
    except ImportError as missing:
        print(f"kafkalog-report: {missing.name} is not installed; {install_hint('report')}", file=sys.stderr)
        return exit_codes.WRONG_USAGE
    from kafkalog_spark.report.collect import collect

    top_keys, check = list(dict.fromkeys(arguments.top_keys)), not arguments.no_check
    with Progress(unit="B", unit_scale=True, desc="reading") as progress:
        dirs = LogDirs.open(arguments.paths, *storage_of(arguments))
        if arguments.output != "-":
            _check_output(arguments.output, dirs)
        facts = collect(dirs, created_ms, progress.step, top_keys=top_keys, with_check=check)
    text = page(facts, arguments.title)
    if arguments.output == "-":
        sys.stdout.write(text)
        return exit_codes.OK
    try:
        write_atomically(arguments.output, text)
    except OSError as error:
        print(f"kafkalog-report: {arguments.output} cannot be written: {error.strerror}", file=sys.stderr)
        return exit_codes.FAILED
    print(f"{os.path.abspath(arguments.output)}: {len(text) / 1e6:.1f} MB, open it in a browser", file=sys.stderr)
    return exit_codes.OK


def _check_output(output: str, dirs: LogDirs) -> None:
    """Raise OptionError if the output file is inside a log directory."""
    for root in dirs.roots:
        if root.store.is_remote:
            continue
        source = os.path.realpath(root.path)
        if os.path.commonpath([os.path.realpath(output), source]) == source:
            what = f"-o {output} is inside {root.path}, which must not be changed"
            raise OptionError(f"{what}: name a file elsewhere")


if __name__ == "__main__":
    sys.exit(main())
