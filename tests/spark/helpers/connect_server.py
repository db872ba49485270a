"""A server of Spark Connect in a process of its own, and a Python for its clients."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from kafkalog_broker.testing_support.kept_port import kept_port
from tests.spark_session import JVM_FOR_TESTS, LOOPBACK_AND_PATIENT

ROOT = Path(__file__).parents[3]
ENVIRONMENT = ROOT / ".tools" / "connect"
START_SECONDS = 240  # 10 s on a machine that does nothing else


def client_python() -> Path:
    """A Python with pyspark-client, which has no Java, and without kafkalog; made once, from the package index."""
    python, stamp = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "installed"
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    with open(ENVIRONMENT.with_name("connect.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "pyspark-client>=4.0,<5"], check=True)
            stamp.touch()
    return python


def client_packages() -> str:
    """The folder with what that Python has: grpcio, pandas and what else pyspark[connect] needs beside pyspark."""
    (folder,) = ENVIRONMENT.glob("lib/python3*/site-packages")
    return str(folder)


@contextlib.contextmanager
def connect_server(log: Path) -> Iterator[str]:
    """The address, sc://..., of a server with two cores that finds kafkalog by itself. `log`: what it prints."""
    home = Path(pyspark.__file__).parent
    owner = contextlib.ExitStack()  # lives as long as this generator
    port = kept_port(owner)
    settings = {
        **LOOPBACK_AND_PATIENT,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]",
               "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]  # fmt: skip
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ, **JVM_FOR_TESTS, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(home.parent), str(home / "python" / "lib" / "py4j-src.zip")]),
    }  # fmt: skip
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"], cwd=log.parent, env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _wait_for(port, process, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the Spark Connect server does not serve: {log.read_text(errors='replace')[-3000:]}")
