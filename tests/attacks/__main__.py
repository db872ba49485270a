"""Attacks of a client that needs no login, on this broker and on a real Apache Kafka.

    python -m tests.attacks                                   # all, both brokers, a table for benchmarks/results
    python -m tests.attacks --only list_offsets --side kafkalog --repeat 3
    python -m tests.attacks --list

`nice -n -10` in front keeps other work on the machine out of the figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.report import Report
from tests.attacks.catalog import ATTACKS
from tests.attacks.measure import measure, table


def main(
    report: Report, names: Sequence[str] = ("kafkalog", "kafka"), only: Sequence[str] = (), repeat: int = 1
) -> None:
    """All attacks, or those named, on these brokers. Raises ValueError for an attack that does not exist."""
    unknown = set(only) - {attack.name for attack in ATTACKS}
    if unknown:
        raise ValueError(f"unknown attacks: {sorted(unknown)}; there are {[attack.name for attack in ATTACKS]}")
    chosen = [attack for attack in ATTACKS if not only or attack.name in only]
    print(table(chosen, measure(names, chosen, repeat, report)), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these attacks")
    parser.add_argument("--side", nargs="*", default=["kafkalog", "kafka"], choices=["kafkalog", "kafka"])
    parser.add_argument("--repeat", type=int, default=1, help="times; the best is reported")
    parser.add_argument("--list", action="store_true", help="print the names of the attacks")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = _arguments()
    if arguments.list:
        print("\n".join(f"{attack.name:20} {attack.title}" for attack in ATTACKS))
    else:
        main(Report(), arguments.side, arguments.only, arguments.repeat)
