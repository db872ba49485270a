"""format("kafkalog") registered by hand, where Spark does not find it by itself.

Spark runs a source that it found itself with the driver's Python (PYSPARK_DRIVER_PYTHON), and one that was registered
with that of the workers (PYSPARK_PYTHON), each on the driver and the executors alike: planning happens on the driver.
With `--archives env.tar.gz#env` and PYSPARK_PYTHON=./env/bin/python a driver in client mode has no such file, and a
registered source cannot be planned (IOException: Cannot run program "./env/bin/python").
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog_spark.errors import OptionError
from kafkalog_spark.store.storage_options import HiddenOptions, is_storage_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalog_spark.datasource import KafkaLogDataSource

_KNOWN_TO_PYSPARK = (".zip", ".egg", ".jar")  # pyspark.core.context: PACKAGE_EXTENSIONS
_log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register format("kafkalog") with a session; left out, with a warning, where that would break what works.

    Raises OptionError where the workers' Python is not on the driver's machine, and Spark does not find the source
    by itself either.
    """
    from kafkalog_spark.datasource import KafkaLogDataSource

    python = _missing_python(spark)
    if python is None:
        _give_wheel_to_workers(spark)
        spark.dataSource.register(with_storage_of(spark, KafkaLogDataSource))
        return
    why = f"the workers' Python, {python!r} (PYSPARK_PYTHON), is not to be found from the driver's {os.getcwd()}"
    if not _finds_it_by_itself(spark):
        raise OptionError(
            f"{why}, and Spark plans a registered source with it",
            hint="unpack the archive there too, or set PYSPARK_DRIVER_PYTHON to a Python that has kafkalog and do not "
            "register (docs/clusters.md)",
        )
    _log.warning("not registered, since Spark finds format('kafkalog') by itself: %s", why)


def with_storage_of(spark: SparkSession, source: type[KafkaLogDataSource]) -> type[KafkaLogDataSource]:
    """The source with what the application, or the session, was configured with for S3 (`spark.hadoop.fs.s3a.…`), which
    Spark shows to no source in Python; the source as it is where there is none."""
    said = {name: value for name, value in spark.conf.getAll.items() if is_storage_option(name)}
    if not said:
        return source
    # Named as if it were of the main module, so that it is pickled with what it holds, and not by its name.
    holds = {"application_options": HiddenOptions(said), "__module__": "__main__", "__doc__": source.__doc__}
    return type(source.__name__, (source,), holds)


def _give_wheel_to_workers(spark: SparkSession) -> None:
    """`spark-submit --py-files kafkalog.whl` puts the wheel on the driver's path only: PySpark passes on to workers
    what is called .zip, .egg or .jar, whatever is in it. So they get the wheel under such a name."""
    archive = archive_of(__file__)
    if archive is None or archive.suffix in _KNOWN_TO_PYSPARK or _is_connect(spark):
        return
    copy = Path(tempfile.mkdtemp(prefix="kafkalog-"), f"{archive.stem}.zip")
    shutil.copyfile(archive, copy)
    atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)  # executors that start later fetch it later
    spark.addArtifacts(str(copy), pyfile=True)


def archive_of(file: str) -> Path | None:
    """The zip in which a module's file lies; None: it is a file like others."""
    return next((parent for parent in Path(file).parents if parent.is_file()), None)


def _missing_python(spark: SparkSession) -> str | None:
    """The path of the workers' Python where it is a path, and none of the driver's machine. spark-submit puts
    `spark.pyspark.python` into the same variable."""
    if _is_connect(spark):
        return None  # the server's affair
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    return python if os.sep in python and not os.path.exists(python) else None


def _is_connect(spark: SparkSession) -> bool:
    """True if the session is a client of Spark Connect. Its class is not imported: it needs packages that may be
    missing."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _finds_it_by_itself(spark: SparkSession) -> bool:
    """Asked by a load without a path, which Spark refuses where it knows no such source, and kafkalog otherwise."""
    try:
        spark.read.format("kafkalog").load()
    except Exception as error:  # noqa: BLE001  whatever Spark raises, its text holds our error or it does not
        return "kafkalog_spark.errors.OptionError" in str(error)
    return True
