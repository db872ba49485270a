"""Command: search for crash states that break a promise, or check one state again.

python -m tests.crash_states --states 2000 --mode strict --seed 1
python -m tests.crash_states --states 200 --workload transactions --mode default
python -m tests.crash_states --replay /tmp/runs/transactions-strict-1.run:512:nothing:7
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.crash_states.disk import StateKind, write_tree
from tests.crash_states.search import Found, search_all
from tests.crash_states.state_check import check_state, state_tree
from tests.crash_states.world import WORKLOADS, Mode, Run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash_states", description=__doc__)
    parser.add_argument("--states", type=int, default=500, help="states in all, divided over the workloads")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], default="default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workload", action="append", default=[], choices=sorted(WORKLOADS))
    parser.add_argument("--runs", type=Path, help="directory for the runs in which something was found")
    parser.add_argument("--replay", help="RUN:EVENT:KIND:SEED, as an anomaly names it")
    parser.add_argument("--keep", type=Path, help="with --replay: write the state into this directory, too")
    parser.add_argument("--quiet", action="store_true", help="print the counts only")
    arguments = parser.parse_args()
    if arguments.replay:
        return _replay(arguments.replay, arguments.keep)
    runs = arguments.runs or Path(tempfile.mkdtemp(prefix="crash-runs-"))
    runs.mkdir(parents=True, exist_ok=True)
    told: Counter[tuple[str, str]] = Counter()

    def tell(found: Found) -> None:
        kind = (found.workload, found.anomaly.kind)
        told[kind] += 1
        if not arguments.quiet and told[kind] <= 5:
            print(found, flush=True)

    result = search_all(
        arguments.states, Mode(arguments.mode), arguments.seed, arguments.workload, save=runs, tell=tell
    )
    print(f"mode {arguments.mode}, seed {arguments.seed}, runs with anomalies in {runs}")
    for workload, count in sorted(result.states.items()):
        of_workload = {kind: n for (name, kind), n in sorted(result.by_class().items()) if name == workload}
        told_kinds = ", ".join(f"{kind} {n}" for kind, n in of_workload.items()) or "no anomaly"
        print(f"  {workload:20} {count:6} states: {told_kinds}")
    print(f"  {'all':20} {result.states.total():6} states, {len({(f.workload, f.state) for f in result.found})} bad")
    return 1 if result.found else 0


def _replay(name: str, keep: Path | None) -> int:
    path, point, kind, seed = name.rsplit(":", 3)
    run = Run.load(Path(path))
    if keep is not None:
        write_tree(state_tree(run, int(point), StateKind(kind), int(seed)), keep)
    anomalies = check_state(run, int(point), StateKind(kind), int(seed))
    for anomaly in anomalies:
        print(anomaly)
    print(f"{len(anomalies)} anomalies")
    return 1 if anomalies else 0


sys.exit(main())
