"""Upper limit for every Python data source: rows/s of a source that only hands a finished Arrow table to Spark.

The variants are values of 100 B and 1 kB, and all seven columns or two, each with Spark's default settings and with
Unix domain sockets.
"""

from __future__ import annotations

from functools import partial

from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SOCKETS, SparkSession

CEILING = "benchmarks.sources:Ceiling"
SHAPES: dict[str, dict[str, str]] = {
    "4 M x 100 B, 7 columns": {"rows": "1000000", "value_size": "100"},
    "2 M x 1 kB, 7 columns": {"rows": "500000", "value_size": "1000"},
    "4 M, offset and timestamp": {"rows": "1000000", "columns": "offset,timestamp"},
}
PARTITIONS = 4


def main(report: Report, rounds: int = 5) -> None:
    """Report each shape with and without Unix domain sockets."""
    with SparkSession() as default, SparkSession(SOCKETS) as sockets:
        for what, options in SHAPES.items():
            runs = {
                "default": partial(default.run, "ceiling", options, register=CEILING),
                "sockets": partial(sockets.run, "ceiling", options, register=CEILING),
            }
            seconds = in_turn(runs, rounds=rounds)
            millions = PARTITIONS * int(options["rows"]) / 1e6
            report.add(
                "handover",
                what,
                default_M_rows_per_s=rate(millions, seconds["default"]),
                sockets_M_rows_per_s=rate(millions, seconds["sockets"]),
                x_sockets=round(ratio(seconds["default"], seconds["sockets"]), 2),
            )


if __name__ == "__main__":
    main(Report())
