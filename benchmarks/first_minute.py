"""First use after an installation, from a clone and from a wheel.

make demo     seconds in a new clone and environment until the first rows, and until the end
wheel         seconds in a new environment from the start of Python to the first row of a query, compared with a Python
              data source that has one row. The wheel of a platform contains compiled kernels; with the plain wheel they
              are compiled during the query
image's user  the plain wheel with kernels that were compiled when the image was built, for a user without a home
              directory and without write access: in Spark, kafkalog-cat and the broker

Packages come from the configured index of pip. Each run is a process; `compiled` is the number of kernels it wrote.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from benchmarks.report import Report
from kafkalog_broker.testing import running_broker

ROOT = Path(__file__).resolve().parent.parent
RECORDS = 1000
KERNELS = "read,write,json,avro,protobuf,broker"
_REMOVED_VARIABLES = ("PYTHONPATH", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
QUERY = """
import os, sys, time
os.environ["PYSPARK_PYTHON"] = sys.executable
kind, path = sys.argv[1:]
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

class IdleReader(DataSourceReader):
    def read(self, partition):
        import pyarrow as pa
        yield pa.RecordBatch.from_pydict({"offset": [0]})

class Idle(DataSource):
    @classmethod
    def name(cls):
        return "idle"
    def schema(self):
        return "offset BIGINT"
    def reader(self, schema):
        return IdleReader()

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Idle)
reader = spark.read.format("idle" if kind == "idle" else "kafkalog").options(subscribe="orders")
if kind == "json":
    reader = reader.options(**{"value.format": "json", "value.schema": "amount INT"})
assert len(reader.load(path).take(1)) == 1
os._exit(0)  # the shutdown of Spark is not measured
"""


def run(command: Sequence[str | Path], **more: object) -> None:
    """Run a command. If it fails, print its output and raise CalledProcessError."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore[call-overload]
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    done.check_returncode()


def demo(report: Report, folder: Path) -> None:
    """Report `make demo` in a new clone."""
    run(["git", "clone", "--quiet", ROOT, folder])
    began, first = time.perf_counter(), 0.0
    command = ["make", f"PYTHON={sys.executable}", "demo"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "First rows" in line:
                first = time.perf_counter() - began
    if process.returncode or not first:
        raise RuntimeError(f"make demo: exit status {process.returncode}")
    end = time.perf_counter() - began
    report.add(
        "first_minute",
        "make demo",
        first_rows_s=round(first, 1),
        bar_first="<= 60",
        end_s=round(end, 1),
        bar_end="<= 120",
    )


def wheel(folder: Path, kernels: str) -> Path:
    """Build a wheel of this checkout. `kernels`: names of the groups of compiled kernels in it, separated by commas."""
    environment = {**os.environ, "KAFKALOG_KERNELS": kernels}
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT], env=environment)
    (built,) = folder.glob("*.whl")
    return built


def environment_of(folder: Path, wheel: Path) -> Path:
    """Install a wheel in a new environment, and return its Python."""
    run([sys.executable, "-m", "venv", folder])
    run([folder / "bin" / "pip", "install", "--quiet", f"{wheel}[spark,broker]"])
    return folder / "bin" / "python"


def environment_with(home: Path, temporary: Path) -> dict[str, str]:
    """Return the environment variables of a user with this home directory."""
    kept = {name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES}
    return {**kept, "HOME": str(home), "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"}


def first_row(python: Path, kind: str, logs: Path, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> float:
    """Return the seconds from the start of a Python process to its first row."""
    began = time.perf_counter()
    run([*prefix, python, "-c", QUERY, kind, logs], env=environment, cwd=environment["TMPDIR"])
    return time.perf_counter() - began


def compiled(*folders: Path) -> set[Path]:
    return {path for folder in folders for path in folder.rglob("*.nbi")}


def queries(
    report: Report, what: str, python: Path, logs: Path, home: Path, bars: Mapping[str, str], rounds: int
) -> None:
    """Report each kind of query with an empty cache of kernels."""
    package = python.parent.parent
    before = compiled(package)
    best: dict[str, float] = {}
    kernels = dict.fromkeys(("idle", *bars), 0)
    for _ in range(rounds):
        for kind in kernels:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            seconds = first_row(python, kind, logs, environment_with(home, home))
            best[kind] = min(best.get(kind, seconds), seconds)
            new = compiled(package, home) - before
            kernels[kind] = max(kernels[kind], len(new))
            for path in {path.parent for path in new if path.is_relative_to(package)}:
                shutil.rmtree(path)
    for kind, bar in bars.items():
        more = best[kind] - best["idle"]
        report.add(
            "first_minute", f"{what}, {kind}", first_row_s=round(best[kind], 1), idle_source_s=round(best["idle"], 1),
            more_s=round(more, 1), bar=bar, compiled=kernels[kind],
        )  # fmt: skip


def image_user(report: Report, python: Path, logs: Path, home: Path) -> None:
    """Report the use in Spark, and in the broker and kafkalog-cat, without write access."""
    package = python.parent.parent
    # from another directory: Python would import the sources of the checkout
    run([python, "-m", "kafkalog_spark.warm", "--only", "read,write,json,broker"], cwd=home)
    folders = [path for path in package.rglob("*") if path.is_dir()]
    drop = ["setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override"] if os.getuid() == 0 else []
    environment = environment_with(package / "none", home)
    before = compiled(package)
    for path in folders:
        path.chmod(0o555)
    try:
        seconds = {kind: first_row(python, kind, logs, environment, drop) for kind in ("idle", "untyped", "json")}
        in_spark = len(compiled(package, home) - before)
        command = [*drop, python.parent / "kafkalog-broker", "--log-dir", home / "new", "--port", "0"]
        with subprocess.Popen(list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            bootstrap = next(line.split()[2].rstrip(",") for line in broker.stdout if " serves " in line)
            began = time.perf_counter()
            produce(bootstrap)
            produced = time.perf_counter() - began
            broker.terminate()
        began = time.perf_counter()
        run([*drop, python.parent / "kafkalog-cat", home / "new", "-t", "orders"], env=environment)
        read = time.perf_counter() - began
    finally:
        for path in folders:
            path.chmod(0o755)
    report.add(
        "first_minute", "image's user, Spark", untyped_more_s=round(seconds["untyped"] - seconds["idle"], 1),
        json_more_s=round(seconds["json"] - seconds["idle"], 1), compiled=in_spark,
    )  # fmt: skip
    report.add(
        "first_minute", "image's user, broker and kafkalog-cat", produce_s=round(produced, 2), cat_s=round(read, 2),
        compiled=len(compiled(package, home) - before),
    )  # fmt: skip


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "log_level": 0})
    for number in range(RECORDS):
        producer.produce("orders", b'{"amount": %d}' % number)
    if producer.flush(60):
        raise RuntimeError("the broker has not acknowledged all records")


def main(report: Report, rounds: int = 2) -> None:
    """Run all measurements."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as name:
        folder = Path(name)
        logs, home = folder / "logs", folder / "home"
        with running_broker(topics={"orders": 1}, log_dir=logs) as broker:
            produce(broker.bootstrap)
        python = environment_of(folder / "python", wheel(folder / "platform", KERNELS))
        queries(report, "platform's wheel", python, logs, home, {"untyped": "<= 2", "json": "<= 2"}, rounds)
        plain = wheel(folder / "plain", "")
        run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", plain])
        queries(report, "plain wheel, empty cache", python, logs, home, {"untyped": "<= 8", "json": "<= 12"}, rounds)
        image_user(report, python, logs, home)
        demo(report, folder / "clone")


if __name__ == "__main__":
    main(Report())
