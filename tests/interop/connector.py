"""Spark with its own Kafka connector in a separate environment, with which format("kafkalog") is compared.

    connector = Connector.install()
    connector.python      # an interpreter that has pyspark 4.2.0
    connector.conf        # Spark settings that put the connector on the class path

The connector of 4.2.0 is the newest that runs with a released Spark of the same version, so it gets a Spark of its own.
KAFKALOG_CONNECTOR_HOME names another place than ~/.cache/connector-anchor.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.interop.real_kafka import available, maven_jar

SPARK = "4.2.0"
SCALA = "2.13"
# The connector and what it needs beside Spark's own jars, as its pom says.
_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{SPARK}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_TOKENS = Path(__file__).parent / "DelegationTokens.scala"


@dataclass(frozen=True)
class Connector:
    """An installed connector. `home` holds venv/ and jars/."""

    home: Path

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return self.home / "venv" / "bin" / "python"

    @property
    def conf(self) -> dict[str, str]:
        """Spark settings: the connector's jars on the driver's class path (local mode has no other)."""
        return {"spark.driver.extraClassPath": ":".join(str(jar) for jar in sorted((self.home / "jars").glob("*.jar")))}

    @classmethod
    def install(cls, home: Path | None = None) -> Connector:
        """Install it unless it is there. Raises RuntimeError with the words of pip, Maven or scalac."""
        if home is None:
            home = Path(os.environ.get("KAFKALOG_CONNECTOR_HOME") or Path.home() / ".cache" / "connector-anchor")
        connector = cls(home)
        if not connector._complete():
            home.mkdir(parents=True, exist_ok=True)
            with (home / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not connector._complete():
                    connector._install()
        return connector

    def _complete(self) -> bool:
        return self.python.exists() and (self.home / "jars" / "stub.jar").exists()  # the last to be made

    def _install(self) -> None:
        if not self.python.exists():
            _run(sys.executable, "-m", "venv", self.home / "venv")
        # pandas 3 is not known to this pyspark, which looks for pandas when it meets Arrow
        _run(self.python, "-m", "pip", "install", "-q", f"pyspark=={SPARK}", "pandas<3", "pyarrow", "numpy")
        jars = self.home / "jars"
        for artifact in _JARS:
            # one by one and without what they depend on: all of that is among Spark's own jars
            maven_jar(artifact, jars)
        self._compile_tokens(jars / "stub.jar")

    def _compile_tokens(self, jar: Path) -> None:
        """Compile the stand-in of the token provider with the Scala compiler that Spark brings, so no JDK is needed."""
        where = "import os, pyspark; print(os.path.dirname(pyspark.__file__))"
        spark_jars = Path(_run(self.python, "-c", where).strip()) / "jars"
        with tempfile.TemporaryDirectory() as classes:
            main = ("scala.tools.nsc.Main", "-usejavacp", "-d", classes, _TOKENS)
            _run("java", "-cp", f"{spark_jars}/*", *main)
            with zipfile.ZipFile(jar.with_suffix(".tmp"), "w") as archive:
                for path in sorted(Path(classes).rglob("*.class")):
                    archive.write(path, path.relative_to(classes))
        jar.with_suffix(".tmp").rename(jar)


def connector_available() -> str | None:
    """Return why the connector cannot run here, in one line, or None if it can. Does not install it."""
    reason = available()
    if reason is None and shutil.which("mvn") is None:
        reason = "Spark's Kafka connector needs Maven (mvn) on PATH to fetch its jars, once"
    return reason


def _run(*command: object) -> str:
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}")
    return ran.stdout
