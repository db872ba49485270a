"""format("kafkalog"): names, schema, and which reader or writer serves what; `register`, where Spark does not find it
by itself. Spark imports this; everything else comes later."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.spark.interface import RefusedStreamReader, StreamWriterBase, first_line, warm_in_background

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalog_spark.sink.options import WriteOptions
    from kafkalog_spark.source.resolved_read import LoadOptions

_KNOWN_TO_PYSPARK = (".zip", ".egg", ".jar")  # pyspark.core.context: PACKAGE_EXTENSIONS
_REDACTION = "spark.sql.redaction.options.regex"
REDACTED_OPTIONS = r"(?i:^(storage|fs\.s3a|tiered\.encryption|kafka\.ssl|kafka\.sasl)\.|schema\.registry\.)"
"""Regular expression of Java for the names of options that may hold a secret, or an endpoint with one. Spark's own
patterns have `secret`, `password`, `token` and `access.key` only."""

_log = logging.getLogger(__name__)


class KafkaLogDataSource(DataSource):
    """Kafka's segment files as a table; options: docs/options.md and docs/sink.md.

    application_options: what the application says about storage, which yields to the options of a load or a write; set
    by register().
    """

    application_options: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    @first_line
    def schema(self) -> StructType:
        """The schema of the columns asked for. Options and paths are checked here, so that mistakes show at load()."""
        from kafkalog_spark.source.batch_reader import check_pushdown, table_schema
        from kafkalog_spark.source.partition_bounds import check_load
        from kafkalog_spark.source.resolved_read import load_schema

        options = self._load_options.either()
        check_pushdown(options)
        check_load(options)
        if options.table is not None:
            return table_schema(options.table)
        warm_in_background(side.name for side in options.formats.values())
        return load_schema(options, self._load_options.formats(options))

    @first_line
    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkalog_spark.source.batch_reader import KafkaLogBatchReader, TableReader, check_pushdown
        from kafkalog_spark.source.resolved_read import RecordProjection

        options = self._load_options.one_of(streaming=False)
        if options.table is not None:
            return TableReader(options, schema)
        warm_in_background(side.name for side in options.formats.values())
        read = self._load_options.resolved(options, schema)
        RecordProjection(read)  # a schema that cannot be had is refused before anything is planned
        check_pushdown(options)
        return KafkaLogBatchReader(read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = self._load_options.one_of(streaming=True)
            try:
                from kafkalog_spark.source.stream_reader import KafkaLogStreamReader
            except ImportError as error:  # ReadLimit is new in 4.2
                raise OptionError(
                    f"reading streams needs Spark 4.2 or newer, this is {pyspark.__version__}: {error}"
                ) from error
            warm_in_background(side.name for side in options.formats.values())
            return KafkaLogStreamReader(self._load_options.resolved(options, schema))
        except KafkalogError as error:
            return RefusedStreamReader(error)

    @first_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kafkalog_spark.sink.writer import KafkaLogBatchWriter

        options = self._write_options()
        if overwrite:
            raise OptionError(
                "Save mode overwrite not allowed for Kafka",  # the connector's sentence
                hint='write with .mode("append"): a log is only ever appended to, and Spark takes no other mode here',
            )
        if options.producer:
            from kafkalog_spark.sink.producer import ProducerBatchWriter

            return ProducerBatchWriter(options, schema)
        return KafkaLogBatchWriter(options, schema)

    @first_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """overwrite: true in output mode `complete`, which appends, as in Spark's Kafka sink."""
        from kafkalog_spark.sink.writer import KafkaLogStreamWriter

        if StreamWriterBase is object:
            raise OptionError(
                f"writing streams needs Spark 4.1 or newer, this is {pyspark.__version__}",
                hint="write each micro-batch with foreachBatch",
            )
        options = self._write_options()
        if options.producer:
            from kafkalog_spark.sink.producer import ProducerStreamWriter

            return ProducerStreamWriter(options, schema)
        return KafkaLogStreamWriter(options, schema, self.options)

    def _write_options(self) -> WriteOptions:
        from kafkalog_spark.sink.options import parse_write_options
        from kafkalog_spark.source.options import ONLY_OF_READS

        return parse_write_options(self._all_options, ONLY_OF_READS)

    @property
    def _all_options(self) -> dict[str, str]:
        return {**self.application_options, **self.options}

    @cached_property
    def _load_options(self) -> LoadOptions:
        from kafkalog_spark.source.resolved_read import LoadOptions

        return LoadOptions(self._all_options)


def register(spark: SparkSession) -> None:
    """Register format("kafkalog") with a session; left out, with a warning, where that would break what works.

    Spark runs a source that it found itself with the driver's Python (PYSPARK_DRIVER_PYTHON), and one that was
    registered with that of the workers (PYSPARK_PYTHON), on the driver too, where planning happens. With `--archives
    env.tar.gz#env` and PYSPARK_PYTHON=./env/bin/python a driver in client mode has no such file.

    The session's `spark.sql.redaction.options.regex` then covers all options that may hold a secret: Spark shows
    options in plans of temporary views, in its UI and in event logs.

    Raises OptionError where the workers' Python is not on the driver's machine, and Spark does not find the source by
    itself either.
    """
    _redact_options(spark)
    python = _missing_python(spark)
    if python is None:
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
    if archive is None or archive.suffix in _KNOWN_TO_PYSPARK or _is_connect(spark):
        return
    copy = Path(tempfile.mkdtemp(prefix="kafkalog-"), f"{archive.stem}.zip")
    shutil.copyfile(archive, copy)
    atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)  # executors that start later fetch it later
    spark.addArtifacts(str(copy), pyfile=True)


def _archive_of(file: str) -> Path | None:
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
    """True for a client of Spark Connect, whose class is not imported: it needs packages that may be missing."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _finds_it_by_itself(spark: SparkSession) -> bool:
    """Asked by a load without a path, which Spark refuses where it knows no such source, and kafkalog otherwise."""
    try:
        spark.read.format("kafkalog").load()
    except Exception as error:  # noqa: BLE001  whatever Spark raises, its text holds our error or it does not
        return "kafkalog_spark.errors.OptionError" in str(error)
    return True
