"""Command kafkalog-check, which validates log directories and prints a line per finding and a summary."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from kafkalog_spark import exit_codes
from kafkalog_spark.cli.command import command, command_parser
from kafkalog_spark.cli.progress_bar import Progress
from kafkalog_spark.cli.storage_arguments import named_options, storage_of
from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.check.finding import Finding
from kafkalog_spark.log.check.log_dir_check import CheckResult, check_log_dirs

_EXAMPLES = (
    ("kafkalog-check /data/kafka-logs", "every batch, index, snapshot and checkpoint"),
    ("kafkalog-check --records /data/kafka-logs/orders-0", "one partition, with all its records"),
    ("kafkalog-check --closed /backup/kafka-logs", "after a clean shutdown: nothing may be unflushed"),
    ("kafkalog-check --json /data/kafka-logs | jq 'select(.severity == \"error\")'", "errors only, for programs"),
    ("kafkalog-check --estimate --option subscribe=orders /data/kafka-logs", "what a read would scan"),
)


def parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "kafkalog-check",
        "Check Kafka log directories: batches, indexes, snapshots, checkpoints. Changes nothing. Records are "
        "decoded only with --records: without it, malformed records in a batch with a valid CRC are not found.",
        "a log directory (log.dirs), or one partition's directory; also a URL: s3://bucket/logs",
        _EXAMPLES,
        "0 no errors (notes do not count), 1 errors, 2 wrong usage or no log directory",
        "A torn tail is a note, because a crash may leave one. It is an error with --closed, or if the directory\n"
        "has a clean-shutdown marker.\n\n",
    )
    parser.add_argument("--closed", action="store_true", help="the broker was stopped cleanly")
    parser.add_argument(
        "--records", action="store_true", help="decode all records too; takes two to three times as long"
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="only report segments, bytes and records that a read would scan; --option then accepts every option of a "
        "read, such as subscribe=orders, startingTimestamp=1700000000000 (docs/options.md)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line: findings, then the summary")
    parser.add_argument("--quiet", action="store_true", help="print only errors and the summary, no notes")
    return parser


@command("kafkalog-check")
def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.estimate:
        _print_estimate(arguments)
        return exit_codes.OK
    begin = time.monotonic()
    with Progress(unit="B", unit_scale=True, desc="checking") as progress:

        def report(finding: Finding) -> None:
            if not arguments.quiet or finding.is_error:
                progress.print(json.dumps(as_json(finding)) if arguments.json else str(finding))

        result = check_log_dirs(
            arguments.paths,
            *storage_of(arguments),
            was_closed_cleanly=arguments.closed,
            decode_records=arguments.records,
            on_finding=report,
            on_bytes=progress.update,
        )
    seconds = time.monotonic() - begin
    print(summary(result, seconds, for_programs=arguments.json))
    return exit_codes.FAILED if result.findings.errors else exit_codes.OK


def _print_estimate(arguments: argparse.Namespace) -> None:
    """Print the size of a read. Raises OptionError if an option of a check is given."""
    from kafkalog_spark.source.estimate import estimate

    for name in ("records", "closed", "quiet"):
        if getattr(arguments, name):
            raise OptionError(f"--estimate and --{name} are both given", hint="an estimate checks nothing")
    read = estimate(arguments.paths, named_options(arguments.option))
    print(json.dumps(read.as_json()) if arguments.json else read)


def as_json(finding: Finding) -> dict[str, object]:
    """Return the JSON object of a finding. docs/checking.md describes its fields."""
    fault = finding.fault
    return {
        "type": "finding", "severity": finding.severity.value, "topic_partition": finding.topic_partition,
        "path": finding.path, "position": fault.position, "offset": fault.offset, "what": fault.what,
        "expected": fault.expected, "got": fault.got,
    }  # fmt: skip


def summary(result: CheckResult, seconds: float, *, for_programs: bool) -> str:
    """Return the last line of the output, as JSON if it is `for_programs`."""
    partitions, errors, notes = result.partitions.values(), result.findings.errors, result.findings.notes
    segments = sum(partition.segments for partition in partitions)
    batches = sum(partition.batches for partition in partitions)
    if for_programs:
        return json.dumps({
            "type": "summary", "partitions": len(partitions), "segments": segments, "batches": batches,
            "bytes": result.bytes, "seconds": round(seconds, 3), "errors": errors, "notes": notes,
        })  # fmt: skip
    rate = result.bytes / 1e6 / seconds if seconds > 0 else 0.0
    return (
        f"{len(partitions)} partitions, {segments} segments, {batches} batches, {result.bytes / 1e6:.1f} MB checked in "
        f"{seconds:.1f} s ({rate:.0f} MB/s): {errors} errors, {notes} notes"
    )


if __name__ == "__main__":
    sys.exit(main())
