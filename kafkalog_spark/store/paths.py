"""Paths of local files and URLs of objects, and their normalised form.

A normalised local path is absolute and has no scheme. Any other is `scheme://bucket/key`, with one slash between names
and none at the end, so that os.path.join, dirname and basename work on it.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from kafkalog_spark.errors import OptionError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
GCS_SCHEMES = frozenset({"gs", "gcs"})
AZURE_SCHEMES = frozenset({"abfs", "abfss", "az", "azure", "wasb", "wasbs"})
OBJECT_SCHEMES = S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES
HADOOP_SCHEMES = frozenset({"hdfs", "viewfs"})

_CURRENT_SCHEMES = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfs": "abfss",
    "azure": "az",
    "wasb": "abfss",
    "wasbs": "abfss",
}
"""Current scheme by older names of it, such as those of Hadoop's connectors."""


class PathParts(NamedTuple):
    """Parts of a path.

    Attributes:
        scheme: Empty for a local path.
        bucket: Bucket, Azure's `container@account.dfs.core.windows.net` or HDFS's `host:port`; empty for a local path.
        key: Key without a leading slash, or the local path.
    """

    scheme: str
    bucket: str
    key: str


def parse_path(path: str) -> PathParts:
    """Return the parts of a path, normalised. Raises OptionError if it names no bucket, or contains credentials."""
    plain = _FILE.sub("", path, count=1)
    url = _URL.fullmatch(plain)
    if url is None:
        return PathParts("", "", os.path.abspath(plain))
    scheme = _CURRENT_SCHEMES.get(url[1].lower(), url[1].lower())
    bucket, _, key = url[2].partition("/")
    user, at, _ = bucket.rpartition("@")
    if at and (":" in user or scheme in S3_SCHEMES | GCS_SCHEMES):
        raise OptionError(
            f"a {scheme}:// path has credentials in front of the bucket's name",
            hint="paths are shown in plans and logs: give credentials as options, such as fs.s3a.access.key",
        )
    if not bucket and scheme in OBJECT_SCHEMES:
        raise OptionError(f"{path} names no bucket", hint=f"write {scheme}://bucket/path")
    names = [name for name in key.split("/") if name]
    if "." in names or ".." in names:
        raise OptionError(f"{path} has a . or .. in it", hint="keys of an object store have no such names")
    return PathParts(scheme, bucket, "/".join(names))


def normalised(path: str) -> str:
    """Return the normalised text of a path, the same for all paths of one location. Raises OptionError."""
    scheme, bucket, key = parse_path(path)
    if not scheme:
        return key
    return f"{scheme}://{bucket}/{key}" if key else f"{scheme}://{bucket}"


def is_local(path: str) -> bool:
    """Return True if the path is in a file system of this machine: a plain path, or `file:`."""
    return _URL.fullmatch(_FILE.sub("", path, count=1)) is None
