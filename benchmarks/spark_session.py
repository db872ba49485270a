"""Warm Spark sessions in child processes, so that things with different settings or Spark releases take turns."""

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
    """One Spark session in a process of its own, local[2]. A context manager; `run` is one query, timed there."""

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
            environment["PYTHONPATH"] = str(ROOT)  # the sources of benchmarks/sources.py, in driver and workers
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by close()
        self._child = subprocess.Popen(
            [str(python), str(CHILD), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=tempfile.gettempdir(),  # spark-warehouse and derby.log stay out of the project
            env=environment,
        )
        self.version: str = self._answer()["version"]

    def run(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> float:
        """Seconds of one query. The arguments are those of benchmarks/spark_child.py.

        `expect`: the number of rows that `count` or `collect` must give. Raises RuntimeError with Spark's text.
        """
        expect = request.pop("expect", None)
        answer = self._asked(format, options, **request)
        if expect is not None and answer["rows"] != expect:
            raise RuntimeError(f"{format} returned {answer['rows']} rows, expected {expect}")
        return float(answer["seconds"])

    def latencies(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> list[float]:
        """Ms from each record's timestamp to foreachBatch; see the action latency of benchmarks/spark_child.py."""
        return list(self._asked(format, options, action="latency", **request)["latencies"])

    def follow(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> list[list[Any]]:
        """[begin, rows, ms] of each batch; see the action follow of benchmarks/spark_child.py."""
        return list(self._asked(format, options, action="follow", **request)["batches"])

    def triggers(self, format: str, options: Mapping[str, object] | None = None, **request: Any) -> list[list[Any]]:
        """[begin, rows, ms] of each batch; see the action triggers of benchmarks/spark_child.py."""
        return list(self._asked(format, options, action="triggers", **request)["batches"])

    def _asked(self, format: str, options: Mapping[str, object] | None, **request: Any) -> dict[str, Any]:
        text = {key: str(value) for key, value in (options or {}).items()}
        assert self._child.stdin is not None
        print(json.dumps({"format": format, "options": text, **request}), file=self._child.stdin, flush=True)
        answer = self._answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the Spark process ended: {self._log.read()[-3000:]}")
        return dict(json.loads(line))

    def worker_peak_mb(self) -> int | None:
        """As peak_mb, of all Python processes of this session that Spark has started."""
        return self.peak_mb("pyspark")

    def peak_mb(self, module: str) -> int | None:
        """Largest resident memory that a living process of this session has had whose command line names the Python
        module, MB; None where /proc is not.

        Workers are forks of one daemon process, so what they share with it is counted in each.
        """
        if not Path("/proc/self/status").exists():
            return None
        parents, peaks = {}, {}
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
                command = (status.parent / "cmdline").read_bytes()
            except OSError:  # it has ended meanwhile
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
    """Settings together; class paths one after the other."""
    path = "spark.driver.extraClassPath"
    return {**conf, **more, path: ":".join(one[path] for one in (conf, more) if path in one)}
