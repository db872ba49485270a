"""Store over HDFS, read with fsspec's wrapper of Arrow's HadoopFileSystem.

The wrapper needs the libhdfs of a Hadoop installation on the machine (HADOOP_HOME, CLASSPATH; see Arrow's manual).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from kafkalog_spark.store.fsspec_store import FsspecStore
from kafkalog_spark.store.paths import parse_path


@dataclass(frozen=True)
class HadoopStore(FsspecStore):
    """Store of one HDFS. authority: `host:port` of a name node, or empty for fs.defaultFS of Hadoop's configuration."""

    read_arguments: ClassVar[Mapping[str, Any]] = MappingProxyType({"seekable": True})
    """Without `seekable`, fsspec's wrapper fails for ranges that begin at 0."""

    def _file_system(self, fsspec: Any, given: dict[str, Any]) -> Any:
        host, _, port = self.authority.partition(":")
        name_node = {"host": f"{self.scheme}://{host}", "port": int(port or 0)} if host else {}
        try:
            return fsspec.filesystem("hdfs", **{**name_node, **given})
        except OSError as error:
            reason = str(error).partition("\n")[0]
            raise OSError(
                errno.EIO,
                f"HDFS cannot be reached ({reason}): Arrow needs libhdfs and Hadoop's classes, by HADOOP_HOME, "
                "JAVA_HOME and CLASSPATH=$(hadoop classpath --glob)",
                f"{self.scheme}://{self.authority}",
            ) from None

    def _name(self, path: str) -> str:
        return f"/{parse_path(path).key}"
