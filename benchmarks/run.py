"""Run all or some benchmarks, and append their results to benchmarks/results/<date>-<machine>.md.

Benchmarks that compare with Apache Kafka require Maven.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks import figures
from benchmarks.report import Report, machine, versions

NAMES = (
    "decode",
    "planning",
    "handover",
    "tiny_query",
    "compaction",
    "transactional_produce",
    "share",
    "mirror",
    "broker",
    "broker_recovery",
    "broker_scale",
    "groups",
    "handshakes",
    "quotas",
    "security",
    "selective",
    "typed",
    "typed_stages",
    "typed_write",
    "forensics",
    "many_partitions",
    "object_store",
    "tiered_server",
    "streaming",
    "spark_write",
    "spark_read",
    "first_minute",
)
"""Names of the benchmarks, the longest ones last."""
RESULTS = Path(__file__).parent / "results"


def main(names: list[str]) -> int:
    """Run benchmarks; a failed one does not stop the others. Return 0 if all succeeded, otherwise 1 or 2."""
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"unknown benchmarks: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    report, failed = Report(), []
    begin = time.strftime("%H:%M UTC", time.gmtime())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the exit stops Kafka and Spark
    load = os.getloadavg()[0]
    if load > (os.cpu_count() or 1) / 4:
        print(f"the machine is busy (load {load:.1f}): rates will be low, and ratios inaccurate", file=sys.stderr)
    for name in names or NAMES:
        print(f"-- {name}", flush=True)
        try:
            importlib.import_module(f"benchmarks.{name}").main(report)
        except Exception as error:  # noqa: BLE001  reported below, with the figures of those that ran
            failed.append(f"{name}: {type(error).__name__}: {str(error)[:500]}")
            print(f"{name} failed: {error}", file=sys.stderr, flush=True)
    table = report.table()
    print(f"\n{table}")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y-%m-%d', time.gmtime())}-{machine()}.md"
    facts = f"load at the start {load:.2f}, " + ", ".join(f"{name} {value}" for name, value in versions().items())
    with path.open("a", encoding="utf-8") as out:
        out.write(f"# {time.strftime('%Y-%m-%d', time.gmtime())}, {begin}\n\n{facts}\n\n{EXPLANATION}\n\n{table}\n")
        out.writelines(f"\nFailed: {line}\n" for line in failed)
        out.write("\n")
    figures.PAGE.write_text(figures.page(), encoding="utf-8")
    print(f"written to {path.relative_to(RESULTS.parent.parent)}; docs/figures.md is updated")
    return 1 if failed else 0


EXPLANATION = (
    "Rates and seconds are medians. Every `x_` is a median of ratios between runs that took turns in one session: "
    '`x_kafka` how many times faster than format("kafka") (Spark 4.2.0\'s own connector, real Kafka on loopback, the '
    "same files), `x_ceiling` the part of the Arrow hand-over ceiling, "
    "`x_filtering` how many times faster than reading all and filtering in Spark, "
    "`x_counting` the part of a Python sink that only counts its rows, `x_time_of_...` how many times as long as that. "
    "Lines of `typed`: `x_from_json` how many times faster than kafkalog and Spark's from_json, `x_kafka` than "
    'format("kafka") and from_json; `x_ceiling` the part of a source that hands over the same columns, decoded before, '
    'and `ceiling_x_kafka` how many times faster that one is than format("kafka") and the function. '
    "Lines of `typed_write`: `x_to_avro` how many times faster than Spark's to_avro and kafkalog's sink, `x_kafka` "
    "than to_avro and Spark's Kafka sink. "
    "Lines of `broker`: `x_apache_kafka` how many times as fast as a real Apache Kafka 4.3 that the same clients "
    "loaded in turn with this broker, `bar` what it is to be. Lines of `mirror`: `x_of_consumer` the part of a "
    "librdkafka consumer's bytes a second, `x_mirror_maker` how many times those of MirrorMaker 2."
)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
