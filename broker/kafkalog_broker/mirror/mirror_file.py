"""The file that says of a log directory whose mirror it is: `kafkalog.mirror.json`.

    {"version": 0, "cluster_id": "a3Vq...", "own_groups": true}

Another cluster's topics of the same names are other topics: a mirror that was pointed at one would cut its logs. So it
would those of own_groups, with which a broker has served the mirror, whose groups are its own from then on.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format.durable import read_state, replace_file

_log = logging.getLogger(__name__)

MIRROR_FILE = "kafkalog.mirror.json"
VERSION = 0
_DETACHED = ".detached"


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What the file says."""

    cluster_id: str | None
    own_groups: bool


class OtherSource(KafkalogError):
    """The directory is not a mirror of this cluster."""


def check_source(
    directory: Path, cluster_id: str | None, *, is_empty: bool, serves: bool = False, internal: bool = False
) -> None:
    """Raise OtherSource when the directory mirrors another cluster, holds topics of its own, or groups of its own where
    the source's internal topics are asked for; remember the cluster in one that is new, and that a broker serves it.
    cluster_id: None of a cluster that has none. Raises CorruptFile, OSError."""
    path = directory / MIRROR_FILE
    known = read_state(path, _parse)
    if known is None:
        check_is_mirror(directory, is_empty=is_empty)
    elif known.cluster_id != cluster_id:
        raise OtherSource(
            f"the directory mirrors the cluster {known.cluster_id}, this one is {cluster_id}",
            path=str(path),
            hint="mirror each cluster into a directory of its own",
        )
    elif known.own_groups and internal:
        raise OtherSource(
            "a broker has served the directory (kafkalog-broker --mirror-of): its groups are its own, and mirroring "
            "the source's internal topics would replace them",
            path=str(path),
            hint="mirror without --internal, or into another directory",
        )
    state = Mirrored(cluster_id, serves or (known is not None and known.own_groups))
    if state != known:
        _write(path, state)


def keep_own_groups(directory: Path) -> None:
    """Before a broker serves the mirror, if there is one: whatever its clients commit is its own, even while its source
    is away. Raises CorruptFile, UnsupportedFormat, OSError."""
    path = directory / MIRROR_FILE
    known = read_state(path, _parse)
    if known is not None and not known.own_groups:
        _write(path, replace(known, own_groups=True))


def is_mirror(directory: Path) -> bool:
    """Whether a mirror goes on in it."""
    return (directory / MIRROR_FILE).exists()


def check_is_mirror(directory: Path, *, is_empty: bool) -> None:
    """Raise OtherSource for a directory that holds topics and is no mirror."""
    if not is_empty and not is_mirror(directory):
        raise OtherSource(
            "the directory holds topics, and no mirror has made them, or a broker has served it since",
            path=str(directory),
            hint="mirror into a directory of its own",
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


def _write(path: Path, state: Mirrored) -> None:
    replace_file(path, json.dumps({"version": VERSION, **asdict(state)}).encode() + b"\n")


def _parse(data: bytes) -> Mirrored:
    try:
        content = json.loads(data)
        version, cluster_id, own_groups = content["version"], content["cluster_id"], content.get("own_groups", False)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"expected a JSON object with version and cluster_id: {error}") from None
    if version != VERSION:
        raise UnsupportedFormat(f"version {version} of {MIRROR_FILE}, only {VERSION} is known")
    return Mirrored(cluster_id, bool(own_groups))
