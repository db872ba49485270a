"""What a sink keeps in a bucket besides Kafka's own objects: names.

kafkalog.commits/<20 digits>.json            one commit each, numbered from 0 on; see bucket_record
kafkalog.commits/done                        the last commit whose objects are all there: a shortcut, see commit_log
kafkalog.staged/<job>/<task>-<attempt>-<n>.log    whole batches of one partition, their offsets not given yet
"""

from __future__ import annotations

import posixpath
import re

COMMITS = "kafkalog.commits"
STAGED = "kafkalog.staged"
DONE = f"{COMMITS}/done"

_RECORD = re.compile(r"([0-9]{20})\.json")
_PIECE = re.compile(r"kafkalog\.staged/([0-9a-f]{32})/[0-9]+-[0-9a-f]+-[0-9]+\.log")


def record_file(number: int) -> str:
    """Of commit `number`, in COMMITS. What comes before that of number 0 in a listing: an empty name."""
    return f"{number:020d}.json" if number >= 0 else ""


def record_name(number: int) -> str:
    """From the root on."""
    return posixpath.join(COMMITS, record_file(number))


def record_number(file: str) -> int | None:
    """The number of a commit, by the name of its record in COMMITS; None for another name."""
    found = _RECORD.fullmatch(file)
    return int(found[1]) if found else None


def staged_directory(job: str) -> str:
    return posixpath.join(STAGED, job)


def piece_name(job: str, task: int, attempt: str, number: int) -> str:
    """Of a staged object, from the root on."""
    return f"{STAGED}/{job}/{task}-{attempt}-{number}.log"


def is_piece_name(name: str) -> bool:
    return bool(_PIECE.fullmatch(name))
