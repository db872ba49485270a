"""kafkalog-check: whether log directories hold what a broker may leave there.

    kafkalog-check /data/kafka-logs                 every batch, index, snapshot and checkpoint; changes nothing
    kafkalog-check --records /data/kafka-logs       decode every record, too: a CRC only says that nothing changed
    kafkalog-check --closed /backup/kafka-logs      of a broker that was stopped cleanly: nothing may be left undone

One line a finding on stdout, and a summary; a progress bar on stderr where that is a terminal.
Exit codes: 0 no errors (notes are none), 1 errors, 2 the command line is wrong or a path is no log directory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from kafkalog_spark.commands.progress import Progress
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.log.check.finding import Finding
from kafkalog_spark.log.check.log_dir_check import CheckResult, check_log_dirs
from kafkalog_spark.log.store.storage_names import is_storage_option
from kafkalog_spark.log.store.storage_options import StorageOptions
from kafkalog_spark.log.tiered.tier_options import TierOptions, is_tier_option

CLEAN, ERRORS, WRONG_USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kafkalog-check",
        description="Check Kafka log directories: batches, indexes, snapshots, checkpoints. Changes nothing. Records "
        "are looked into with --records only: without it, malformed ones in a batch with a valid CRC are not found.",
        epilog="A torn tail that a crash left is a note and no error, unless --closed or the directory's "
        "clean-shutdown marker says that there was no crash. Exit codes: 0 no errors, 1 errors, 2 wrong usage.",
    )
    made.add_argument(
        "paths",
        nargs="+",
        metavar="DIR",
        help="a log directory (log.dirs), or one partition's directory; also a URL: s3://bucket/logs",
    )
    made.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="about an object store, such as fs.s3a.endpoint=http://minio:9000 (docs/object_storage.md), or about "
        "tiered storage: layout, tiered.key.prefix, tiered.encryption.key.ID=PATH; secrets are better said by the "
        "environment, the profile or a file",
    )
    made.add_argument("--closed", action="store_true", help="the broker was stopped cleanly")
    made.add_argument(
        "--records", action="store_true", help="decode all records, too; takes two to three times as long"
    )
    made.add_argument("--quiet", action="store_true", help="no notes, only errors and the summary")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Check, print, and return the exit code."""
    arguments = parser().parse_args(argv)
    begun = time.monotonic()
    with Progress(unit="B", unit_scale=True, desc="checking") as progress:

        def tell(finding: Finding) -> None:
            if not arguments.quiet or finding.is_error:
                progress.print(str(finding))

        try:
            result = check_log_dirs(
                arguments.paths,
                *_storage_and_tier(arguments.option),
                closed=arguments.closed,
                records=arguments.records,
                on_finding=tell,
                on_bytes=progress.update,
            )
        except KafkalogError as error:
            print(f"kafkalog-check: {error}", file=sys.stderr)
            return WRONG_USAGE
    print(summary(result, time.monotonic() - begun))
    return ERRORS if result.findings.errors else CLEAN


def _storage_and_tier(given: Sequence[str]) -> tuple[StorageOptions, TierOptions]:
    """What --option says. Raises OptionError."""
    options: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not (is_storage_option(name) or is_tier_option(name.lower())):
            raise OptionError(
                "--option takes NAME=VALUE, where NAME is layout or begins with fs.s3a., storage., tiered."
            )
        options[name] = value
    of_storage = {name: value for name, value in options.items() if is_storage_option(name)}
    return StorageOptions.of(of_storage), TierOptions.of(options)


def summary(result: CheckResult, seconds: float) -> str:
    """One line: what was looked at, and how much was found."""
    of = result.partitions.values()
    rate = result.bytes / 1e6 / seconds if seconds > 0 else 0.0
    return (
        f"{len(of)} partitions, {sum(p.segments for p in of)} segments, {sum(p.batches for p in of)} batches, "
        f"{result.bytes / 1e6:.1f} MB checked in {seconds:.1f} s ({rate:.0f} MB/s): "
        f"{result.findings.errors} errors, {result.findings.notes} notes"
    )


if __name__ == "__main__":
    sys.exit(main())
