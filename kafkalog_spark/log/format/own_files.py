"""What a partition's directory holds besides its segments: small files, each written aside and renamed."""

from __future__ import annotations

from kafkalog_spark.log.format.checkpoint import LEADER_EPOCH_CHECKPOINT
from kafkalog_spark.log.format.durable import TEMPORARY_SUFFIX
from kafkalog_spark.log.format.partition_metadata import PARTITION_METADATA_FILE

OWN_FILES = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA_FILE})
UNFINISHED = frozenset(name + TEMPORARY_SUFFIX for name in OWN_FILES)
"""What a crash leaves between the writing of one of them and its renaming. The next start of a broker removes it."""
