"""Record the fsyncs of a real Kafka or of our broker: python -m tests.interop.record_fsyncs kafka|ours|table

`kafka` writes kafka-4.3.0-fsyncs.json, `ours` writes kafkalog-fsyncs.json, both beside this file, with one row for each
setting and step; both need strace. `table` writes the tables of docs/fsyncs.md from these two files.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from kafkalog_broker.testing import RunningBroker
from tests.interop.fsync_comparison import load, tables
from tests.interop.fsync_differences import DIFFERENCES
from tests.interop.fsync_scenario import HOUR_MS, PROPERTIES, SETTINGS, STEPS, Row, Session
from tests.interop.fsync_trace import Trace, unavailable
from tests.interop.real_kafka import VERSION, RealKafka

KAFKA = Path(__file__).with_name(f"kafka-{VERSION}-fsyncs.json")
OURS = Path(__file__).with_name("kafkalog-fsyncs.json")
PAGE = Path(__file__).parents[2] / "docs" / "fsyncs.md"
_TABLES_FOLLOW = "<!-- The tables are written by `python -m tests.interop.record_fsyncs table`. -->\n"
KAFKA_RUNS = 3
"""What Kafka does in a background thread may be done before or after the response."""
KAFKA_QUIET_SECONDS = 2.0
"""Longer than any delay between the scheduled tasks of Kafka that the steps wait for."""
OUR_QUIET_SECONDS = 1.2
"""Longer than the interval of our broker's housekeeping, which flushes, removes and checkpoints."""
KAFKA_PROPERTIES = {"early.start.listeners": "CONTROLLER", "metadata.max.idle.interval.ms": 0}
"""Without records in the metadata log that only show that the controller is alive."""


class TracedKafka(RealKafka):
    def be_idle(self) -> None:
        """Do nothing: Kafka's clock cannot be moved."""


class TracedBroker(RunningBroker):
    def be_idle(self) -> None:
        for _ in range(3):
            self.clock.advance(seconds=HOUR_MS / 1000)


def record_kafka(directory: Path, properties: dict[str, object]) -> dict[str, Row]:
    """Return the rows of a real Kafka under these properties."""
    trace = Trace(directory)
    all_properties = {**PROPERTIES, **KAFKA_PROPERTIES, **properties}
    kafka = TracedKafka(directory / "kafka", all_properties, short_lived=True, command_prefix=trace.command)
    session = Session(kafka, trace, kafka.data_dir, quiet_seconds=KAFKA_QUIET_SECONDS, wait_seconds=0)
    try:
        return session.run(STEPS.items())
    finally:
        kafka.kill()


def record_ours(
    directory: Path, properties: dict[str, object], expected: dict[str, Row] | None = None, **times: float
) -> dict[str, Row]:
    """Return the rows of our broker under these properties. `expected`, `times`: see `Session`."""
    trace = Trace(directory)
    log_dir = directory / "broker" / "data"
    log_dir.parent.mkdir()
    all_properties = {**PROPERTIES, "log.dirs": log_dir, **properties}
    broker = TracedBroker(directory / "ours", all_properties, control=True, command_prefix=trace.command)
    given: dict[str, Any] = {"quiet_seconds": OUR_QUIET_SECONDS, "wait_seconds": 0} | times
    session = Session(broker, trace, log_dir, expected=expected, **given)
    try:
        return session.run(STEPS.items())
    finally:
        broker.kill()


def page() -> str:
    """Return docs/fsyncs.md with the tables of the recordings."""
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(_TABLES_FOLLOW)
    return head + mark + "\n" + tables(load(KAFKA), load(OURS), DIFFERENCES)


def main(argv: list[str]) -> int:
    if argv == ["table"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if argv not in (["kafka"], ["ours"]):
        print(__doc__, file=sys.stderr)
        return 2
    if reason := unavailable():
        print(reason, file=sys.stderr)
        return 1
    record, file, runs = (record_kafka, KAFKA, KAFKA_RUNS) if argv == ["kafka"] else (record_ours, OURS, 1)
    found = {}
    for name, properties in SETTINGS.items():
        recordings = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as directory:
                recordings.append(record(Path(directory), properties))
        found[name] = combined(recordings)
    settings = [f"{json.dumps(name)}: {{\n{_lines(rows)}\n}}" for name, rows in found.items()]
    file.write_text("{\n" + ",\n".join(settings) + "\n}\n", encoding="utf-8")
    return 0


def combined(recordings: list[dict[str, Row]]) -> dict[str, Row]:
    """Return the first recording, with the system calls that were in all of them.

    They differ in what is done before a response, and in how many records of the metadata log share a flush. Any other
    difference is reported on stderr.
    """
    rows, *others = recordings
    for other in others:
        for step, row in rows.items():
            for name in {*row["syncs"].items()} ^ {*other[step]["syncs"].items()}:
                if "__cluster_metadata" not in name[0]:
                    print(f"two runs differ in the step {step!r}: {name}", file=sys.stderr)
            row["syncs"] = dict(Counter(row["syncs"]) & Counter(other[step]["syncs"]))
            row["before"] = dict(Counter(row["before"]) & Counter(other[step]["before"]))
    return rows


def _lines(rows: dict[str, Row]) -> str:
    return ",\n".join(f"{json.dumps(step)}: {json.dumps(row)}" for step, row in rows.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
