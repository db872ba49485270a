"""Runs that take turns, statistics of their times, and the report of a benchmark as JSON lines and as a table."""

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
    """Run A, B, C, A, B, C and so on. Return the seconds of each without the warm-ups.

    A run returns its own seconds. The speed of a machine drifts over minutes, so only times of the same round are
    comparable.
    """
    durations: dict[Name, list[float]] = {name: [] for name in runs}
    for round_ in range(warmups + rounds):
        for name, run in runs.items():
            seconds = run()
            if round_ >= warmups and seconds is not None:
                durations[name].append(seconds)
    return durations


def ratio(slower: list[float], faster: list[float]) -> float:
    """Return the median over the rounds of slower / faster."""
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))


def rate(amount: float, seconds: list[float]) -> float:
    """Return `amount` per second in the median round, with three digits."""
    return float(f"{amount / statistics.median(seconds):.3g}")


def best_ratio(slower: list[float], faster: list[float]) -> float:
    """Return slower / faster, each in its best round.

    It is meant for short runs of several processes, whose times other work on the machine can only increase.
    """
    return min(slower) / min(faster)


def best_rate(amount: float, seconds: list[float]) -> float:
    """Return `amount` per second in the best round, with three digits."""
    return float(f"{amount / min(seconds):.3g}")


@dataclass
class Report:
    """Rows of the report of one run. `silent`: add rows without printing them, for a warm-up."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    silent: bool = False

    def add(self, benchmark: str, what: str, **figures: Any) -> None:
        """Add a row, and print it as a line of JSON.

        Args:
            benchmark: Name of the benchmark.
            what: Name of the measurement.
            **figures: Results by name. A name ends with its unit.
        """
        row = {"benchmark": benchmark, "what": what, **figures}
        self.rows.append(row)
        if not self.silent:
            print(json.dumps(row), flush=True)

    def table(self) -> str:
        """Return a Markdown table of the rows. Figures are written as `name value`."""
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
    """Return the name of the processor according to the operating system."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            match = re.search(r"^model name\s*:\s*(.+)$", info.read(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def machine() -> str:
    """Return the processor and number of cores as a part of a file name, without the host name."""
    words = re.sub(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*", "", cpu_model())
    return re.sub(r"[^a-z0-9]+", "-", f"{words} {os.cpu_count()} cores".lower()).strip("-")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages, and the processor."""
    by_name = {"Python": platform.python_version(), "cores": str(os.cpu_count()), "CPU": cpu_model()}
    for name in ("kafkalog", "pyspark", "pyarrow", "numpy", "numba", "lz4", "zstandard", "python-snappy", "crc32c"):
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            by_name[name] = "not installed"
    return by_name
