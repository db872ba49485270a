"""Registers format("kafkalog") with a session, and checks that the session's workers can run it."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from kafkalog_spark.datasource import KafkaLogDataSource
from kafkalog_spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REDACTED_OPTIONS = r"(?i:^(storage|fs\.s3a|tiered\.encryption|kafka\.ssl|kafka\.sasl)\.|schema\.registry\.)"
"""Java regular expression for names of options whose values may contain a secret, such as a password in an endpoint.
Spark itself redacts only `secret`, `password`, `token` and `access.key`."""
_REDACTION = "spark.sql.redaction.options.regex"
_PYSPARK_ARCHIVE_SUFFIXES = (".zip", ".egg", ".jar")  # pyspark.core.context: PACKAGE_EXTENSIONS
_REQUIRED_PACKAGES = ("numba", "numpy", "pyarrow")
_SHIPPED = f"{os.sep}userFiles-"
"""Part of the path of the directory on sys.path in which Spark keeps an application's files (SparkContext.addFile)."""
_PRINT_MISSING_PACKAGES = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n) is None))"

_log = logging.getLogger(__name__)

_sessions_with_wheel: WeakSet[SparkSession] = WeakSet()
"""Sessions to whose workers the wheel was given. Artifacts belong to a session."""


def register(spark: SparkSession) -> None:
    """Register format("kafkalog") with a session. Skipped, with a warning, if it would break a working setup.

    Spark plans a source that it has discovered itself with PYSPARK_DRIVER_PYTHON, but a registered source with
    PYSPARK_PYTHON, the Python of the workers, even on the driver. With `--archives env.tar.gz#env` and
    PYSPARK_PYTHON=./env/bin/python that file does not exist on a driver in client mode.

    Also extends the session's `spark.sql.redaction.options.regex` to all options that may hold a secret: Spark shows
    options in plans of temporary views, in its UI and in event logs.

    Raises:
        OptionError: If the workers' Python does not exist on the driver and Spark does not discover the source either;
            or if that Python lacks kafkalog or a package that it needs.
    """
    _redact_options(spark)
    python = _missing_python(spark)
    if python is None:
        check_workers_python(spark)
        _give_wheel_to_workers(spark)
        spark.dataSource.register(_with_storage_options(spark))
        return
    why = (
        f"the workers' Python, {python!r} (PYSPARK_PYTHON), does not exist on the driver (working directory "
        f"{os.getcwd()})"
    )
    if not _is_discovered(spark):
        raise OptionError(
            f"{why}, and Spark plans a registered source with it",
            hint="unpack the archive on the driver too, or set PYSPARK_DRIVER_PYTHON to a Python that has kafkalog and "
            "do not call register (docs/clusters.md)",
        )
    _log.warning("not registered, since Spark finds format('kafkalog') by itself: %s", why)


def check_workers_python(spark: SparkSession) -> None:
    """Raise OptionError if the Python of Spark's workers lacks kafkalog or a package that reading needs.

    Spark would end such a query with a Java stack trace that does not name kafkalog.
    """
    if _is_connect(spark) or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return  # the Connect server, or Databricks, chooses the Python of the workers
    python = _workers_python()
    executable = shutil.which(python)
    if executable is not None and os.path.abspath(executable) == os.path.abspath(sys.executable):
        return  # the Python of this process, which has kafkalog
    # A wheel, and files that are added with addArtifacts or --py-files, are on the path of the workers too.
    packages = _REQUIRED_PACKAGES if _archive_of(__file__) is not None else ("kafkalog_spark", *_REQUIRED_PACKAGES)
    shipped = tuple(path for path in sys.path if _SHIPPED in path)
    missing = ["Python itself"] if executable is None else _missing_packages(executable, packages, shipped)
    if missing:
        raise OptionError(
            f"Spark's workers run {python!r} ({executable or 'not on PATH'}), which lacks {', '.join(missing)}",
            hint='set os.environ["PYSPARK_PYTHON"] = sys.executable before the session is created, or name another '
            "Python that has kafkalog (docs/clusters.md)",
        )


def _redact_options(spark: SparkSession) -> None:
    current = spark.conf.get(_REDACTION) or ""
    if REDACTED_OPTIONS not in current:
        spark.conf.set(_REDACTION, f"{current}|{REDACTED_OPTIONS}" if current else REDACTED_OPTIONS)


def _missing_python(spark: SparkSession) -> str | None:
    """Return PYSPARK_PYTHON if it is a path that does not exist on this machine.

    spark-submit sets the variable to `spark.pyspark.python`.
    """
    if _is_connect(spark):
        return None  # decided by the server
    python = _workers_python()
    return python if os.sep in python and not os.path.exists(python) else None


def _workers_python() -> str:
    return os.environ.get("PYSPARK_PYTHON", "python3")


@cache
def _missing_packages(python: str, packages: tuple[str, ...], shipped: tuple[str, ...]) -> list[str]:
    """Return the packages that a Python finds neither on its own path nor on `shipped`."""
    path = os.pathsep.join((*shipped, *filter(None, [os.environ.get("PYTHONPATH")])))
    command, environment = [python, "-c", _PRINT_MISSING_PACKAGES, *packages], {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []  # Spark will report what is wrong with this Python
    return done.stdout.split()


def _give_wheel_to_workers(spark: SparkSession) -> None:
    """Give the workers the wheel from which this module was imported.

    `spark-submit --py-files kafkalog.whl` puts the wheel on the path of the driver only. PySpark sends a file to the
    workers only if its name ends in .zip, .egg or .jar, so they get a copy with such a name.
    """
    archive = _archive_of(__file__)
    if archive is None or archive.suffix in _PYSPARK_ARCHIVE_SUFFIXES:
        return
    if _is_connect(spark) or spark in _sessions_with_wheel:
        return
    spark.addArtifacts(str(_copied(archive)), pyfile=True)
    _sessions_with_wheel.add(spark)


def _archive_of(file: str) -> Path | None:
    """Return the archive that contains a module, None if it is an ordinary file."""
    return next((parent for parent in Path(file).parents if parent.is_file()), None)


@cache
def _copied(archive: Path) -> Path:
    """Copy an archive under a name that PySpark sends to workers. The copy exists until this process ends."""
    copy = Path(tempfile.mkdtemp(prefix="kafkalog-"), f"{archive.stem}.zip")
    shutil.copyfile(archive, copy)
    # not earlier, because executors that start later fetch the copy later
    atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)
    return copy


def _with_storage_options(spark: SparkSession) -> type[KafkaLogDataSource]:
    """Return a subclass with the session's `spark.hadoop.fs.s3a.*` settings; the class itself if there are none.

    Spark does not pass these settings to Python sources.
    """
    from kafkalog_spark.store.hidden_options import HiddenOptions
    from kafkalog_spark.store.storage_options import is_storage_option

    source = KafkaLogDataSource
    options = {name: value for name, value in spark.conf.getAll.items() if is_storage_option(name)}
    if not options:
        return source
    # A class of __main__ is pickled by value, with these options, and not by its name.
    members = {"application_options": HiddenOptions(options), "__module__": "__main__", "__doc__": source.__doc__}
    return type(source.__name__, (source,), members)


def _is_discovered(spark: SparkSession) -> bool:
    """Return True if Spark finds the source by itself.

    The check is a load without a path: if Spark finds the source, the error is kafkalog's.
    """
    try:
        spark.read.format("kafkalog").load()
    except Exception as error:  # noqa: BLE001  Spark wraps the error in exceptions of several types
        return "kafkalog_spark.errors.OptionError" in str(error)
    return True


def _is_connect(spark: SparkSession) -> bool:
    """Return True for a client of Spark Connect. Its class is not imported: that needs packages that may be missing."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")
