"""spark.python.daemon.module=kafkalog_spark.daemon: Python workers that begin with everything loaded.

Each worker is a fork of one daemon process. Spark's own has loaded next to nothing, so every worker loads pyspark's
worker, numpy, pyarrow, numba and the kernels anew: about 1 s of processor time, again whenever Spark stops taking rows
(limit, take, show) and so ends the worker. This daemon has loaded all of it. Spark reads the setting when it starts.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback

from pyspark import daemon

READS_AND_WRITES = "pyspark.worker"  # the worker module of tasks. The others plan, and decode nothing.
FOR_PLANNING = ("pyarrow", "pyspark.sql.datasource", "kafkalog_spark.source.batch_reader")
FOR_TASKS = (
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "kafkalog_spark.source.stream_reader",
    "kafkalog_spark.log.read.partition_scan",
    "kafkalog_spark.sink.writer",
    "kafkalog_spark.sink.task_writer",
)


def preload(worker_module: str) -> None:
    """Load what a worker of this module needs. The threads that this starts are those of jemalloc (pyarrow) and
    OpenBLAS (numpy), which make them anew in a fork."""
    for name in (worker_module, *FOR_PLANNING):
        importlib.import_module(name)
    if worker_module == READS_AND_WRITES:
        from kafkalog_spark.warm import warm

        for name in FOR_TASKS:
            importlib.import_module(name)
        warm()
    gc.collect()
    gc.freeze()  # workers collect garbage after every task: what is here now never is any


def main() -> None:
    try:
        preload(sys.argv[1] if len(sys.argv) > 1 else READS_AND_WRITES)
    except Exception:  # noqa: BLE001  workers load it themselves then, and fail where it is needed
        traceback.print_exc()
    daemon.manager()


if __name__ == "__main__":
    main()
