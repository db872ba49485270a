"""What is done once in a Python worker process of Spark, for all the tasks it will run."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


@cache
def settle() -> None:
    """Take what is imported by now out of the garbage collector's sight, when this process is a Spark worker.

    pyspark's daemon collects garbage after every task, and the worker is not there for the next one before it has. With
    numba, llvmlite and pyarrow imported that walks 400,000 objects, 30 to 70 ms of processor time, to find that modules
    are still in use. So a worker's first task calls this at its end: before it has read, the kernels are not loaded.
    """
    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()
