"""Daemon of Spark's Python workers that loads all modules and kernels before it forks a worker.

Enabled by spark.python.daemon.module=kafkalog_spark.daemon, which Spark reads when it starts. Every worker is a fork of
the daemon process. With Spark's own daemon every new worker has to load PySpark's worker module, numpy, pyarrow, numba
and the kernels. Workers are replaced often, because a query that stops early (limit, take, show) ends its workers.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback

from pyspark import daemon

TASK_WORKER = "pyspark.worker"
"""Worker module of tasks. All other worker modules only plan."""
PLANNING_MODULES = (
    "pyarrow",
    "pyspark.sql.datasource",
    "kafkalog_spark.source.batch_reader",
    "kafkalog_spark.source.table_reader",
)
TASK_MODULES = (
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "kafkalog_spark.source.stream_reader",
    "kafkalog_spark.log.read.partition_scan",
    "kafkalog_spark.sink.writer",
    "kafkalog_spark.sink.task_writer",
)


def preload(worker_module: str) -> None:
    """Import the modules that workers need, and load the kernels if the workers run tasks.

    The imports start threads of jemalloc (pyarrow) and OpenBLAS (numpy). These libraries start their threads again in a
    fork.

    Args:
        worker_module: Module that the workers run.
    """
    for name in (worker_module, *PLANNING_MODULES):
        importlib.import_module(name)
    if worker_module == TASK_WORKER:
        from kafkalog_spark.warm import warm

        for name in TASK_MODULES:
            importlib.import_module(name)
        warm()
    gc.collect()
    gc.freeze()  # workers collect garbage after every task, and then skip the objects of this process


def main() -> None:
    try:
        preload(sys.argv[1] if len(sys.argv) > 1 else TASK_WORKER)
    except Exception:  # noqa: BLE001  the workers will load the modules themselves and report the error
        traceback.print_exc()
    daemon.manager()


if __name__ == "__main__":
    main()
