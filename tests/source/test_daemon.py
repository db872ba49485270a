"""kafkalog_spark.daemon: what its workers find loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = [
    "numba",
    "pyarrow",
    "pyspark.worker",
    "kafkalog_spark.log.read.partition_scan",
    "kafkalog_spark.sink.task_writer",
]


def printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


def test_task_worker_preloads_kernels_that_its_forks_use(tmp_path: Path) -> None:
    from tests.source.helpers.made_logs import append, numbers

    append(tmp_path, "t", 0, numbers(0, 10))
    found = printed(
        "import os, sys\n"
        "from kafkalog_spark.daemon import preload\n"
        "preload('pyspark.worker')\n"
        f"assert not set({NEEDED!r}) - set(sys.modules), sys.modules\n"
        "from kafkalog_spark.kernels.decode_v2 import decode_v2\n"
        "assert decode_v2.overloads\n"
        "before = set(sys.modules)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    from tests.source.helpers.driver import read\n"
        f"    print(read({str(tmp_path)!r}, subscribe='t').num_rows, flush=True)\n"
        "    new = set(sys.modules) - before\n"
        "    print(sorted(name for name in new if name.startswith(('numba', 'kafkalog_spark.log'))))\n"
        "    sys.stdout.flush()\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    assert found == "10\n[]\n"


@pytest.mark.parametrize(
    "module", ["pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.create_data_source"]
)
def test_planning_worker_does_not_wait_for_numba(module: str) -> None:
    code = f"import sys\nfrom kafkalog_spark.daemon import preload\npreload({module!r})\nprint('numba' in sys.modules)"
    assert printed(code) == "False\n"


def test_daemon_prints_nothing_before_its_port() -> None:
    """Spark reads the daemon's port from its stdout."""
    assert printed("from kafkalog_spark.daemon import preload\npreload('pyspark.worker')") == ""
