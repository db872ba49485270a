"""Registration of format("kafkalog") with a session, and the checks that its workers can run it."""

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

from kafkalog_spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from kafkalog_spark.datasource import KafkaLogDataSource

_KNOWN_TO_PYSPARK = (".zip", ".egg", ".jar")  # pyspark.core.context: PACKAGE_EXTENSIONS
_REDACTION = "spark.sql.redaction.options.regex"
REDACTED_OPTIONS = r"(?i:^(storage|fs\.s3a|tiered\.encryption|kafka\.ssl|kafka\.sasl)\.|schema\.registry\.)"
"""Regular expression of Java for the names of options that may hold a secret, or an endpoint with one. Spark's own
patterns have `secret`, `password`, `token` and `access.key` only."""

_log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register format("kafkalog") with a session; left out, with a warning, where that would break what works.

    Spark runs a source that it found itself with the driver's Python (PYSPARK_DRIVER_PYTHON), and one that was
    registered with that of the workers (PYSPARK_PYTHON), on the driver too, where planning happens. With `--archives
    env.tar.gz#env` and PYSPARK_PYTHON=./env/bin/python a driver in client mode has no such file.

    The session's `spark.sql.redaction.options.regex` then covers all options that may hold a secret: Spark shows
    options in plans of temporary views, in its UI and in event logs.

    Raises OptionError where the workers' Python is not on the driver's machine, and Spark does not find the source by
    itself either; or where that Python lacks kafkalog or a package that it needs.
    """
    _redact_options(spark)
    python = _missing_python(spark)
    if python is None:
        check_workers_python(spark)
        _give_wheel_to_workers(spark)
        spark.dataSource.register(_with_storage_options(spark))
        return
    why = f"the workers' Python, {python!r} (PYSPARK_PYTHON), is not to be found from the driver's {os.getcwd()}"
    if not _finds_it_by_itself(spark):
        raise OptionError(
            f"{why}, and Spark plans a registered source with it",
            hint="unpack the archive there too, or set PYSPARK_DRIVER_PYTHON to a Python that has kafkalog and do not "
            "register (docs/clusters.md)",
        )
    _log.warning("not registered, since Spark finds format('kafkalog') by itself: %s", why)


def _redact_options(spark: SparkSession) -> None:
    current = spark.conf.get(_REDACTION) or ""
    if REDACTED_OPTIONS not in current:
        spark.conf.set(_REDACTION, f"{current}|{REDACTED_OPTIONS}" if current else REDACTED_OPTIONS)


def _with_storage_options(spark: SparkSession) -> type[KafkaLogDataSource]:
    """The source with what the application, or the session, was configured with for S3 (`spark.hadoop.fs.s3a.…`), which
    Spark shows to no source in Python; the source as it is where there is none."""
    from kafkalog_spark.store.storage_options import HiddenOptions, is_storage_option

    source = KafkaLogDataSource
    options = {name: value for name, value in spark.conf.getAll.items() if is_storage_option(name)}
    if not options:
        return source
    # Named as if it were of the main module, so that it is pickled with what it holds, and not by its name.
    members = {"application_options": HiddenOptions(options), "__module__": "__main__", "__doc__": source.__doc__}
    return type(source.__name__, (source,), members)


def _give_wheel_to_workers(spark: SparkSession) -> None:
    """`spark-submit --py-files kafkalog.whl` puts the wheel on the driver's path only: PySpark passes on to workers
    what is called .zip, .egg or .jar, whatever is in it. So they get the wheel under such a name."""
    archive = _archive_of(__file__)
    if archive is None or archive.suffix in _KNOWN_TO_PYSPARK or _is_connect(spark) or spark in _with_wheel:
        return
    spark.addArtifacts(str(_copied(archive)), pyfile=True)
    _with_wheel.add(spark)


_with_wheel: WeakSet[SparkSession] = WeakSet()
"""Sessions whose workers have the wheel: artifacts belong to a session."""


@cache
def _copied(archive: Path) -> Path:
    """Copy an archive under a name that PySpark passes on to workers, for the life of this process."""
    copy = Path(tempfile.mkdtemp(prefix="kafkalog-"), f"{archive.stem}.zip")
    shutil.copyfile(archive, copy)
    atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)  # executors that start later fetch it later
    return copy


def _archive_of(file: str) -> Path | None:
    """The zip in which a module's file lies; None: it is a file like others."""
    return next((parent for parent in Path(file).parents if parent.is_file()), None)


def _missing_python(spark: SparkSession) -> str | None:
    """The path of the workers' Python where it is a path, and none of the driver's machine. spark-submit puts
    `spark.pyspark.python` into the same variable."""
    if _is_connect(spark):
        return None  # the server's affair
    python = _workers_python()
    return python if os.sep in python and not os.path.exists(python) else None


def _workers_python() -> str:
    return os.environ.get("PYSPARK_PYTHON", "python3")


def check_workers_python(spark: SparkSession) -> None:
    """Raise OptionError if the Python that Spark runs has no kafkalog, or lacks a package that reading needs.

    Spark itself ends such a query with a Java stack trace that does not name kafkalog.
    """
    if _is_connect(spark) or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return  # the Connect server, or Databricks, chooses the Python of the workers
    python = _workers_python()
    found = shutil.which(python)
    if found is not None and os.path.abspath(found) == os.path.abspath(sys.executable):
        return  # the Python of this process, which has kafkalog
    # a wheel, or what was added with addArtifacts or --py-files, is on the workers' path too
    packages = _NEEDED if _archive_of(__file__) is not None else ("kafkalog_spark", *_NEEDED)
    shipped = tuple(path for path in sys.path if _SHIPPED in path)
    missing = ["Python itself"] if found is None else _missing_packages(found, packages, shipped)
    if missing:
        raise OptionError(
            f"Spark's workers run {python!r} ({found or 'not on PATH'}), which lacks {', '.join(missing)}",
            hint='type os.environ["PYSPARK_PYTHON"] = sys.executable before the session is created, or name another '
            "Python that has kafkalog (docs/clusters.md)",
        )


_NEEDED = ("numba", "numpy", "pyarrow")
_SHIPPED = f"{os.sep}userFiles-"
"""Part of the path of the directory in which Spark keeps an application's files (SparkContext.addFile), on sys.path."""
_FIND = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n) is None))"


@cache
def _missing_packages(python: str, packages: tuple[str, ...], shipped: tuple[str, ...]) -> list[str]:
    """Return those of the packages that a Python does not find, on its own path or on `shipped`."""
    path = os.pathsep.join((*shipped, *filter(None, [os.environ.get("PYTHONPATH")])))
    command, environment = [python, "-c", _FIND, *packages], {**os.environ, "PYTHONPATH": path}
    try:
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []  # the error that Spark raises says what is wrong with this Python
    return asked.stdout.split()


def _is_connect(spark: SparkSession) -> bool:
    """True for a client of Spark Connect, whose class is not imported: it needs packages that may be missing."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _finds_it_by_itself(spark: SparkSession) -> bool:
    """Asked by a load without a path, which Spark refuses where it knows no such source, and kafkalog otherwise."""
    try:
        spark.read.format("kafkalog").load()
    except Exception as error:  # noqa: BLE001  whatever Spark raises, its text holds our error or it does not
        return "kafkalog_spark.errors.OptionError" in str(error)
    return True
