"""Measuring in turn, and telling what came out: JSON lines for machines, one table for people."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)


def in_turn(
    runs: Mapping[Name, Callable[[], float | None]], *, rounds: int = 5, warmups: int = 2
) -> dict[Name, list[float]]:
    """Run A, B, C, A, B, C ... and return the seconds of each, warm-ups left out.

    A run returns its own seconds. Machines drift over minutes: only what was measured in the same round compares.
    """
    taken: dict[Name, list[float]] = {name: [] for name in runs}
    for round_ in range(warmups + rounds):
        for name, run in runs.items():
            seconds = run()
            if round_ >= warmups and seconds is not None:
                taken[name].append(seconds)
    return taken


def ratio(slower: list[float], faster: list[float]) -> float:
    """How many times `faster` is faster: the median of the ratios of the rounds."""
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))


def rate(amount: float, seconds: list[float]) -> float:
    """amount per second of the median round, three digits."""
    return float(f"{amount / statistics.median(seconds):.3g}")


def best_ratio(slower: list[float], faster: list[float]) -> float:
    """How many times `faster` is faster, by the best round of each.

    For short runs of several processes: what else happens on the machine only ever makes one longer.
    """
    return min(slower) / min(faster)


def best_rate(amount: float, seconds: list[float]) -> float:
    """amount per second of the best round, three digits."""
    return float(f"{amount / min(seconds):.3g}")


@dataclass
class Report:
    """Collects the figures of one run. silent: prints nothing, for what only warms up."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    silent: bool = False

    def add(self, benchmark: str, what: str, **figures: Any) -> None:
        """One line: what was measured, and figures by name (units in the names)."""
        row = {"benchmark": benchmark, "what": what, **figures}
        self.rows.append(row)
        if not self.silent:
            print(json.dumps(row), flush=True)

    def table(self) -> str:
        """Markdown: one line a row, the figures as `name value`."""
        lines = ["| benchmark | what | figures |", "|---|---|---|"]
        for row in self.rows:
            figures = ", ".join(
                f"{name} **{value}**" if name.startswith("x_") else f"{name} {value}"
                for name, value in row.items()
                if name not in ("benchmark", "what")
            )
            lines.append(f"| {row['benchmark']} | {row['what']} | {figures} |")
        return "\n".join(lines)


def cpu_model() -> str:
    """The processor's name as the operating system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            found = re.search(r"^model name\s*:\s*(.+)$", info.read(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def machine() -> str:
    """A few words for a file name: processor and cores. No host name."""
    words = re.sub(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*", "", cpu_model())
    return re.sub(r"[^a-z0-9]+", "-", f"{words} {os.cpu_count()} cores".lower()).strip("-")


def versions() -> dict[str, str]:
    """What was measured with."""
    found = {"Python": platform.python_version(), "cores": str(os.cpu_count()), "CPU": cpu_model()}
    for name in ("kafkalog", "pyspark", "pyarrow", "numpy", "numba", "lz4", "zstandard", "python-snappy", "crc32c"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
