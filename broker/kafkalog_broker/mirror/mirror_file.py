"""The file that says of a log directory whose mirror it is: `kafkalog.mirror.json`.

    {"version": 0, "cluster_id": "a3Vq..."}

Another cluster's topics of the same names are other topics: a mirror that was pointed at one would cut its logs.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format.durable import read_state, replace_file

_log = logging.getLogger(__name__)

MIRROR_FILE = "kafkalog.mirror.json"
VERSION = 0
_DETACHED = ".detached"


class OtherSource(KafkalogError):
    """The directory is not a mirror of this cluster."""


def check_source(directory: Path, cluster_id: str | None, *, is_empty: bool) -> None:
    """Raise OtherSource when the directory mirrors another cluster, or holds topics of its own; remember the cluster in
    one that is new. cluster_id: None of a cluster that has none. Raises CorruptFile, OSError."""
    path = directory / MIRROR_FILE
    known = read_state(path, _parse)
    if known is None:
        if not is_empty:
            raise OtherSource(
                "the directory holds topics, and no mirror has made them, or a broker has served it since",
                path=str(directory),
                hint="mirror into a directory of its own",
            )
        replace_file(path, json.dumps({"version": VERSION, "cluster_id": cluster_id}).encode() + b"\n")
    elif known[0] != cluster_id:
        raise OtherSource(
            f"the directory mirrors the cluster {known[0]}, this one is {cluster_id}",
            path=str(path),
            hint="mirror each cluster into a directory of its own",
        )


def detach(directory: Path) -> None:
    """A broker serves the directory: what producers write to it has no place in the source's logs, so a mirror must not
    go on in it. Raises OSError."""
    path = directory / MIRROR_FILE
    if path.exists():
        path.replace(path.with_name(path.name + _DETACHED))
        _log.warning(
            "%s is a mirror no more: from now on this broker is its leader, and no mirror goes on in it", directory
        )


def _parse(data: bytes) -> tuple[str | None]:
    try:
        content = json.loads(data)
        version, cluster_id = content["version"], content["cluster_id"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"expected a JSON object with version and cluster_id: {error}") from None
    if version != VERSION:
        raise UnsupportedFormat(f"version {version} of {MIRROR_FILE}, only {VERSION} is known")
    return (cluster_id,)
