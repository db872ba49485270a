"""Our broker makes the fsyncs that a real Kafka 4.3.0 was recorded to make, or the difference is explained.

`python -m tests.interop.record_fsyncs kafka` and `ours` record both anew, `table` writes docs/fsyncs.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.fsync_comparison import load, unexplained
from tests.interop.fsync_differences import DIFFERENCES
from tests.interop.fsync_scenario import SETTINGS, STEPS
from tests.interop.fsync_trace import unavailable
from tests.interop.record_fsyncs import KAFKA, OURS, record_ours

QUIET_SECONDS = 0.15
"""How long a step waits for a sync that the recording does not have. A later one fails the next step."""
WAIT_SECONDS = 20.0
"""How long a step waits for a sync that the recording has."""


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("setting", SETTINGS)
def test_fsyncs_of_our_broker_in_each_step_equal_those_of_kafka_or_are_explained(setting: str, tmp_path: Path) -> None:
    kafka, recorded = load(KAFKA)[setting], load(OURS)[setting]
    found = record_ours(
        tmp_path, SETTINGS[setting], recorded, quiet_seconds=QUIET_SECONDS, wait_seconds=WAIT_SECONDS
    )  # fmt: skip
    for step in STEPS:
        without_second_flushes(found[step]["syncs"], recorded[step]["syncs"])
    problems = [
        problem for step in STEPS for problem in unexplained(setting, step, kafka[step], found[step], DIFFERENCES)
    ]
    assert not problems, "\n".join(map(str, problems))
    changed = [step for step in STEPS if found[step]["syncs"] != recorded[step]["syncs"]]
    assert not changed, f"record our broker again with `python -m tests.interop.record_fsyncs ours`: {changed}"


def without_second_flushes(syncs: dict[str, int], recorded: dict[str, int]) -> None:
    """Lower the numbers of fdatasync calls to the recorded ones.

    Housekeeping looks for due logs once a second. If it finds one whose flush is going on, it flushes the log again, so
    the number depends on time. A file that the recording does not have stays a problem.
    """
    for name, count in syncs.items():
        if name.startswith("fdatasync ") and name in recorded:
            syncs[name] = min(count, recorded[name])
