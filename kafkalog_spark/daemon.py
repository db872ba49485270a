"""Daemon of Spark's Python workers that starts them with everything loaded.

Enabled by spark.python.daemon.module=kafkalog_spark.daemon, which Spark reads when it starts. Each worker is a fork of
one daemon process. With Spark's own daemon every worker has to load PySpark's worker module, numpy, pyarrow, numba and
the kernels, also after a query that stopped early (limit, take, show), because that ends the worker.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback

from pyspark import daemon

TASK_WORKER = "pyspark.worker"
"""Worker module of tasks. The others only plan."""
FOR_PLANNING = (
    "pyarrow",
    "pyspark.sql.datasource",
    "kafkalog_spark.source.batch_reader",
    "kafkalog_spark.source.table_reader",
)
FOR_TASKS = (
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "kafkalog_spark.source.stream_reader",
    "kafkalog_spark.log.read.partition_scan",
    "kafkalog_spark.sink.writer",
    "kafkalog_spark.sink.task_writer",
)


def preload(worker_module: str) -> None:
    """Import the modules that workers need, and load the kernels for tasks.

    The threads of jemalloc (pyarrow) and OpenBLAS (numpy) that this starts are restarted by these libraries in a fork.

    Args:
        worker_module: Module that the workers run.
    """
    for name in (worker_module, *FOR_PLANNING):
        importlib.import_module(name)
    if worker_module == TASK_WORKER:
        from kafkalog_spark.warm import warm

        for name in FOR_TASKS:
            importlib.import_module(name)
        warm()
    gc.collect()
    gc.freeze()  # workers collect garbage after every task, and can skip the objects of this process


def main() -> None:
    try:
        preload(sys.argv[1] if len(sys.argv) > 1 else TASK_WORKER)
    except Exception:  # noqa: BLE001  the workers then load the modules themselves, and fail with the error
        traceback.print_exc()
    daemon.manager()


if __name__ == "__main__":
    main()
