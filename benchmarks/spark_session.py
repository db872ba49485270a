"""Spark sessions in child processes, so that queries with different settings or Spark releases can take turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent
CHILD = Path(__file__).parent / "spark_child.py"
SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}


class SparkSession:
    """Context manager of a Spark session on local[2] in a process of its own."""

    def __init__(self, conf: Mapping[str, str] | None = None, python: Path | str = sys.executable):
        settings = {
            "spark.master": "local[2]",
            "spark.driver.memory": "4g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            **(conf or {}),
        }
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        }
        if python == sys.executable:
            environment["PYTHONPATH"] = str(ROOT)  # driver and workers import benchmarks/sources.py
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by close()
        self._child = subprocess.Popen(
            [str(python), str(CHILD), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=tempfile.gettempdir(),  # spark-warehouse and derby.log must not be created in the project
            env=environment,
        )
        self.version: str = self._response()["version"]

    def run(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> float:
        """Run a query, and return its seconds.

        Args:
            format: Format of the source.
            options: Options of the source.
            **request: Further fields of a request of benchmarks/spark_child.py, and `expect`, the number of rows that
                the actions count and collect must return.

        Raises:
            RuntimeError: If the query fails, or the number of rows is wrong.
        """
        expect = request.pop("expect", None)
        response = self._send(format, options, **request)
        if expect is not None and response["rows"] != expect:
            raise RuntimeError(f"{format} returned {response['rows']} rows, expected {expect}")
        return float(response["seconds"])

    def latencies(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> list[float]:
        """Run the action latency of benchmarks/spark_child.py. Return the ms of each record."""
        return list(self._send(format, options, action="latency", **request)["latencies"])

    def follow(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> list[list[Any]]:
        """Run the action follow of benchmarks/spark_child.py. Return [start, rows, ms] of each batch."""
        return list(self._send(format, options, action="follow", **request)["batches"])

    def triggers(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> list[list[Any]]:
        """Run the action triggers of benchmarks/spark_child.py. Return [start, rows, ms] of each batch."""
        return list(self._send(format, options, action="triggers", **request)["batches"])

    def _send(self, format: str, options: Mapping[str, object] | None, **request: Any) -> dict[str, Any]:
        text = {key: str(value) for key, value in (options or {}).items()}
        assert self._child.stdin is not None
        print(json.dumps({"format": format, "options": text, **request}), file=self._child.stdin, flush=True)
        response = self._response()
        if "error" in response:
            raise RuntimeError(response["error"])
        return response

    def _response(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the Spark process ended: {self._log.read()[-3000:]}")
        return dict(json.loads(line))

    def worker_peak_mb(self) -> int | None:
        """Return the largest peak memory of a Python worker of this session in MB, see `peak_mb`."""
        return self.peak_mb("pyspark")

    def peak_mb(self, module: str) -> int | None:
        """Return the largest peak memory of a living process of this session that runs a Python module.

        Workers are forks of one daemon process, so memory that they share with it counts for each.

        Args:
            module: Part of the name of the module in the command line of the process.

        Returns:
            Peak resident memory in MB; None on a system without /proc.
        """
        if not Path("/proc/self/status").exists():
            return None
        parents, peaks = {}, {}
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
                command = (status.parent / "cmdline").read_bytes()
            except OSError:  # the process has ended
                continue
            pid = int(fields["Pid"])
            parents[pid] = int(fields["PPid"])
            if module.encode() in command and b"java" not in command:
                peaks[pid] = int(fields.get("VmHWM", "0 kB").split()[0]) // 1024

        def is_ours(pid: int) -> bool:
            while pid in parents and pid != self._child.pid:
                pid = parents[pid]
            return pid == self._child.pid

        return max((peak for pid, peak in peaks.items() if is_ours(pid)), default=0)

    def close(self) -> None:
        """End the process, and Spark with it."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def with_jars(conf: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Merge Spark settings, and concatenate their class paths."""
    path = "spark.driver.extraClassPath"
    return {**conf, **more, path: ":".join(settings[path] for settings in (conf, more) if path in settings)}
