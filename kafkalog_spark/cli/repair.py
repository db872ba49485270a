"""Command kafkalog-repair, which copies the good batches of a damaged log directory to a new one."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence

from kafkalog_spark import exit_codes
from kafkalog_spark.cli.command import command, command_parser
from kafkalog_spark.cli.progress_bar import Progress
from kafkalog_spark.cli.storage_arguments import storage_of
from kafkalog_spark.errors import escaped
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.repair.from_tier import METADATA_PARTITIONS, TierReport, metadata_from_tier
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from kafkalog_spark.log.repair.report import RepairReport

_EXAMPLES = (
    ("kafkalog-repair /data/damaged --to /data/repaired", "good batches, byte for byte; reports what is lost"),
    ("kafkalog-repair --json /data/damaged --to /data/repaired > lost.json", "the report for programs"),
    (
        "kafkalog-repair --from-tier s3://tier/prefix --to /data/new",
        "metadata of remote segments, rebuilt",
    ),
    ("kafkalog-check /data/repaired", "validate the result"),
)


def parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "kafkalog-repair",
        "Copy the good batches of Kafka log directories to a new directory, byte for byte, and rebuild indexes, "
        "transaction indexes, leader epochs and checkpoints. The source is never changed; stop its broker first, or "
        "repair a snapshot.",
        "a log directory (log.dirs), or one partition's directory",
        _EXAMPLES,
        "0 nothing was lost, 1 something was lost: see the report, 2 wrong usage",
        metavar="SRC",
    )
    parser.add_argument("--to", required=True, metavar="DST", help="a new or empty directory, outside of all sources")
    parser.add_argument("--records", action="store_true", help="decode all records; undecodable batches are lost")
    parser.add_argument(
        "--from-tier", action="store_true",
        help="SRC is tiered storage: write the topic __remote_log_metadata, so that a broker can use its segments",
    )  # fmt: skip
    parser.add_argument(
        "--partitions", type=int, default=METADATA_PARTITIONS, metavar="N",
        help="with --from-tier: partitions of that topic, rlmm.config.remote.log.metadata.topic.num.partitions "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


@command("kafkalog-repair")
def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        with Progress(unit=" partitions", desc="repairing") as progress:
            report = _repair(arguments, progress)
    except OSError as error:
        print(f"kafkalog-repair: {error}", file=sys.stderr)
        return exit_codes.WRONG_USAGE
    if arguments.json:
        print(json.dumps(report.as_json(), indent=1))
    else:
        print("\n".join(map(escaped, report.lines())))
    return exit_codes.OK if report.is_whole else exit_codes.FAILED


def _repair(arguments: argparse.Namespace, progress: Progress) -> RepairReport | TierReport:
    """Run the repair that the command line describes. Raises OSError if a file cannot be read or written."""
    numbers = itertools.count(1)

    def show_partition(_: object, total: int) -> None:
        progress.update(next(numbers), total)

    storage = storage_of(arguments)
    if arguments.from_tier:
        dirs = LogDirs.open(arguments.paths, *storage)
        return metadata_from_tier(dirs, arguments.to, partitions=arguments.partitions, on_partition=show_partition)
    return repair_log_dirs(
        arguments.paths, arguments.to, *storage, decode_records=arguments.records, on_partition=show_partition
    )


if __name__ == "__main__":
    sys.exit(main())
