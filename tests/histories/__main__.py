"""Run clients against a broker that is killed again and again, and check their histories.

    python -m tests.histories --minutes 10 --kills 30 --seed 1

Prints a table and each anomaly; exits with 1 if there is an anomaly.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.histories.checker import Anomaly, count_anomalies, find_anomalies
from tests.histories.run import Plan, run
from tests.histories.table import table

MOST_PRINTED = 20  # anomalies of one class


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the clients work (10)")
    parser.add_argument("--kills", type=int, default=30, help="kills of the broker, at random moments (30)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments and of the load (1)")
    parser.add_argument("--directory", type=Path, help="keep logs here; by default in a temporary directory")
    options = parser.parse_args(arguments)
    plan = Plan(options.minutes * 60, options.kills, options.seed)
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
        return _report(plan, options.directory)
    with tempfile.TemporaryDirectory() as directory:
        return _report(plan, Path(directory))


def _report(plan: Plan, directory: Path) -> int:
    began = time.monotonic()
    history = run(plan, directory, lambda text: print(text, file=sys.stderr, flush=True))
    findings = find_anomalies(history)
    print(f"{plan.kills} kills, seed {plan.seed}, {time.monotonic() - began:.0f} s")
    print(table(history, findings))
    printed: Counter[Anomaly] = Counter()
    for finding in findings:
        printed[finding.anomaly] += 1
        if printed[finding.anomaly] <= MOST_PRINTED:
            print(finding)
    return 1 if count_anomalies(findings).total() else 0


if __name__ == "__main__":
    sys.exit(main())
