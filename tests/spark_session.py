"""How the Spark sessions of the tests are set up: the one of a test run, and those of processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

LOOPBACK_AND_PATIENT = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "300s",  # 15 s for the connection that brings rows to Python
}

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM of a test ends long before the optimising compiler has paid for itself: without it, and with the collector that
starts no threads, a session with one query takes two thirds of the processor time."""
JVM_FOR_TESTS = {"SPARK_SUBMIT_OPTS": _SHORT_LIVED, "SPARK_LAUNCHER_OPTS": _SHORT_LIVED}
"""Environment of a process that starts Spark: options of the driver's JVM, and of the one that finds its command."""
FOR_EXECUTORS = {"spark.executor.extraJavaOptions": _SHORT_LIVED}


def new_session(master: str, settings: Mapping[str, str] | None = None, log_level: str = "ERROR") -> Any:
    """The session of this process, which must not have one yet."""
    # Loopback only, also where the host name resolves to nothing or to a public address.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Without these Spark's workers run the first python3 on PATH, which lacks our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("kafkalog tests")
    for name, value in {**LOOPBACK_AND_PATIENT, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(log_level)
    return session
