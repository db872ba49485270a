"""The file `kafkalog.mirror.json`, which records which cluster a log directory mirrors.

    {"version": 0, "cluster_id": "a3Vq...", "own_groups": true}

Another cluster's topics with the same names are different topics; a mirror of that cluster would truncate the logs. If
own_groups is true, a broker has served the mirror; the source's consumer groups must not replace those of the broker.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.regular_file import read_state

_log = logging.getLogger(__name__)

MIRROR_FILE = "kafkalog.mirror.json"
VERSION = 0
_DETACHED = ".detached"


@dataclass(frozen=True, slots=True)
class MirrorState:
    """Content of the file. `cluster_id` is None for a cluster without an ID."""

    cluster_id: str | None
    own_groups: bool


class OtherSource(KafkalogError):
    """The directory is not a mirror of this cluster."""


def check_source(
    directory: Path, cluster_id: str | None, *, is_empty: bool, serves: bool = False, internal: bool = False
) -> None:
    """Check that the directory may mirror this cluster, and record the cluster and whether a broker serves the mirror.

    Args:
        cluster_id: None if the cluster has no ID.
        is_empty: True if the directory has no topics.
        serves: True if a broker serves the mirror.
        internal: True if the source's internal topics are mirrored too.

    Raises:
        OtherSource: If the directory mirrors another cluster, has topics of its own, or has groups of its own while
            internal topics are to be mirrored.
        CorruptFile, OSError: If the file cannot be read or written.
    """
    path = directory / MIRROR_FILE
    recorded = read_state(path, _parse)
    if recorded is None:
        check_is_mirror(directory, is_empty=is_empty)
    elif recorded.cluster_id != cluster_id:
        raise OtherSource(
            f"the directory mirrors the cluster {recorded.cluster_id}, this one is {cluster_id}",
            path=str(path),
            hint="mirror each cluster into a directory of its own",
        )
    elif recorded.own_groups and internal:
        raise OtherSource(
            "a broker has served the directory (kafkalog-broker --mirror-of): its groups are its own, and mirroring "
            "the source's internal topics would replace them",
            path=str(path),
            hint="mirror without --internal, or into another directory",
        )
    state = MirrorState(cluster_id, serves or (recorded is not None and recorded.own_groups))
    if state != recorded:
        _write(path, state)


def keep_own_groups(directory: Path) -> None:
    """Record that a broker serves the mirror, if the directory is one. Raises CorruptFile, UnsupportedFormat, OSError.

    Offsets that its clients commit are its own, even while the source is unreachable.
    """
    path = directory / MIRROR_FILE
    recorded = read_state(path, _parse)
    if recorded is not None and not recorded.own_groups:
        _write(path, replace(recorded, own_groups=True))


def is_mirror(directory: Path) -> bool:
    """Return whether the directory is a mirror."""
    return (directory / MIRROR_FILE).exists()


def check_is_mirror(directory: Path, *, is_empty: bool) -> None:
    """Raise OtherSource if the directory has topics but is not a mirror."""
    if not is_empty and not is_mirror(directory):
        raise OtherSource(
            "the directory has topics that no mirror created, or a broker has taken it over",
            path=str(directory),
            hint="mirror into a directory of its own",
        )


def detach(directory: Path) -> None:
    """Rename the mirror's file, because a broker owns the directory from now on. The rename is durable.

    Producers may then write records that the source's logs do not have, so no mirror may continue in the
    directory. Raises OSError.
    """
    path = directory / MIRROR_FILE
    if path.exists():
        path.replace(path.with_name(path.name + _DETACHED))
        fsync_directory(directory)
        _log.warning(
            "%s is no longer a mirror: this broker leads it now, and no mirror can continue in it",
            directory,
        )


def _write(path: Path, state: MirrorState) -> None:
    replace_file(path, json.dumps({"version": VERSION, **asdict(state)}).encode() + b"\n")


def _parse(data: bytes) -> MirrorState:
    try:
        content = json.loads(data)
        version = content["version"]
        cluster_id = content["cluster_id"]
        own_groups = content.get("own_groups", False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"expected a JSON object with version and cluster_id: {error}") from None
    if version != VERSION:
        raise UnsupportedFormat(f"{MIRROR_FILE} has version {version}, only {VERSION} is supported")
    return MirrorState(cluster_id, bool(own_groups))
