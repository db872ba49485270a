"""The explained differences between Kafka's fsyncs and ours. An unexplained one fails `test_same_fsyncs.py`."""

from __future__ import annotations

from tests.interop.fsync_comparison import METADATA, Difference

_STRICT = ("log.flush.interval.messages=1",)
_FIRST_START = "first start in an empty directory"
_STOP, _SECOND_STOP = _STOPS = ("clean shutdown", "clean shutdown without appends")
_RECOVERY = "start after kill -9"
_RESTARTS = ("start after a clean shutdown", _RECOVERY, "start after the second clean shutdown")
_FIND_COORDINATOR = ("FindCoordinator, first group", "FindCoordinator, first transactional ID")
_CREATIONS = (
    "create a topic with 1 partition", "create a topic with 4 partitions", "create a topic with flush.messages=1",
    "create a topic with small segments", "create a partition", *_FIND_COORDINATOR,
)  # fmt: skip
_ANOTHER = "another transaction, aborted, rolls the segment"
_IDLE_ROLL = "Produce, rolls the idle segment with an aborted transaction"
_IDLE = "no request for two checkpoint intervals"
_DELETION = "delete a topic with 4 partitions"
_METADATA_CHANGES = (
    "InitProducerId without a transactional ID", "change a topic's configuration", "change the broker's configuration",
    "create an ACL", "create a SCRAM user", "change client quotas",
)  # fmt: skip
_ROLLS = (
    "Produce in the transaction, rolls the segment", "Produce, rolls a segment with an aborted transaction",
    _ANOTHER, _IDLE_ROLL,
)  # fmt: skip
_FLUSHED_TOPIC = ("Produce with flush.messages=1, first batch", "Produce with flush.messages=1, next batch")
_FLUSHED_APPENDS = (
    "Produce, first batch of the partition", "Produce, next batch", *_FLUSHED_TOPIC, "OffsetCommit, first one",
    "OffsetCommit, next one", "InitProducerId, new transactional ID", "AddPartitionsToTxn v3",
    "Produce in the transaction", "AddOffsetsToTxn v3", "TxnOffsetCommit v3",
    "EndTxn v3, commit of records and offsets", "AddPartitionsToTxn v3, next transaction", "EndTxn v3, abort",
    "InitProducerId, known transactional ID", "Produce v12, adds the partition", "TxnOffsetCommit v5, adds the group",
    "EndTxn v5, commit", "SyncGroup", "LeaveGroup", "OffsetDelete", "DeleteGroups", "Produce after the restart",
    _ANOTHER,
)  # fmt: skip
_PARTITION_DIRECTORIES = ("topic directory", "__consumer_offsets directory", "__transaction_state directory")
_FIRST_FLUSHES = (
    "Produce, first batch of the partition", "Produce with flush.messages=1, first batch", "OffsetCommit, first one",
    "InitProducerId, new transactional ID", "Produce in the transaction",
)  # fmt: skip
_INDEXES = (" .index", " .timeindex")
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")

_INDEX_REASON = (
    "Kafka forces the indexes of the active segment whenever it flushes the log. kafkalog forces only the `.log`: "
    "after a crash, recovery rebuilds the active segment's `.index`, `.timeindex` and `.txnindex`. A roll and a clean "
    "shutdown force them."
)
_CHECKPOINT_REASON = (
    "Kafka runs each periodic task for the first time `log.initial.task.delay.ms` after the start. kafkalog writes a "
    "checkpoint when its interval has passed, and only if the content has changed."
)
_EPOCH_REASON = (
    "Kafka's controller elects the leader of each partition again when the broker registers. The leader epoch rises, "
    "and Kafka writes `leader-epoch-checkpoint` again. kafkalog has no elections and keeps the epoch."
)
_RECOVERED_REASON = (
    "kafkalog flushes the records above the recovery point that recovery has found, in the background. Kafka does not."
)
_CREATION_REASON = (
    "Kafka forces the directory of a partition with each of its two files, after the response, and once more with the "
    "first flush. kafkalog forces both files and then the directory with the names of all files, before the response."
)
_BACKGROUND_REASON = (
    "A background thread forces the files of a rolled segment. In Kafka it may be faster than the response."
)

DIFFERENCES: tuple[Difference, ...] = (
    Difference("none", _INDEXES, _FLUSHED_TOPIC, _INDEX_REASON, ("default",)),
    Difference("none", _INDEXES, _FLUSHED_APPENDS, _INDEX_REASON, _STRICT),
    Difference("fewer", _INDEXES, (_ANOTHER,), _INDEX_REASON, _STRICT),
    Difference("none", ("topic .txnindex",), ("EndTxn v3, abort", _ANOTHER), _INDEX_REASON, _STRICT),
    Difference(
        "more",
        ("topic .log",),
        _ROLLS,
        "Kafka flushes the rolled segment. kafkalog flushes the log up to its end, which includes the active segment.",
    ),
    Difference(
        "more",
        ("topic .txnindex",),
        _ROLLS,
        "Kafka has forced this `.txnindex` when it flushed the marker.",
        _STRICT,
    ),
    Difference(
        "more",
        _INDEXES,
        (_ANOTHER,),
        "Kafka does not flush a rolled segment whose records are all below the recovery point. kafkalog does, since "
        "the roll has cut its indexes.",
        ("default",),
    ),
    Difference("late", ("topic .log", "topic .snapshot"), _ROLLS, _BACKGROUND_REASON, ("default",)),
    Difference("fewer", (*_PARTITION_DIRECTORIES,), _CREATIONS, _CREATION_REASON),
    Difference("none", ("topic directory",), _FLUSHED_TOPIC, _CREATION_REASON),
    Difference("none", _PARTITION_DIRECTORIES, _FIRST_FLUSHES, _CREATION_REASON, _STRICT),
    Difference(
        "more",
        ("log directory",),
        _METADATA_CHANGES,
        "A file `kafkalog.*` is replaced by a rename, so the log directory is forced after it. Kafka appends to its "
        "metadata log.",
    ),
    Difference(
        "more",
        ("log directory", "recovery-point-offset-checkpoint"),
        _CREATIONS,
        "kafkalog forces the log directory for the names of new partition directories, for the checkpoint of their "
        "recovery points and for `kafkalog.topics.json`. Kafka does not force it: a power cut may remove a new "
        "partition. The recovery point of a partition tells recovery that its log has no gaps.",
    ),
    Difference(
        "more",
        (METADATA, "log directory"),
        (_ANOTHER,),
        "kafkalog reserves a block of producer IDs with the first InitProducerId after a start. Kafka waits until it "
        "needs a new ID.",
    ),
    Difference(
        "fewer",
        ("log directory",),
        (_DELETION,),
        "Kafka renames the partition directories one by one and forces the log directory after each. kafkalog forces "
        "it once for all.",
    ),
    Difference(
        "none",
        _CHECKPOINTS,
        (_DELETION,),
        "Kafka writes the checkpoints without the deleted partitions. kafkalog removes their entries before it creates "
        "partitions of the same names.",
    ),
    Difference(
        "more",
        ("parent of the log directory",),
        (_FIRST_START,),
        "kafkalog creates a missing log directory and forces the name. Kafka's format tool created it here, and does "
        "not force its name.",
    ),
    Difference("none", (*_CHECKPOINTS, "log directory"), (_FIRST_START, *_RESTARTS), _CHECKPOINT_REASON),
    Difference("fewer", ("log directory",), (_FIRST_START, *_RESTARTS), _CHECKPOINT_REASON),
    Difference("none", ("log-start-offset-checkpoint",), (_SECOND_STOP,), _CHECKPOINT_REASON),
    Difference(
        "more",
        (*_CHECKPOINTS, "log directory"),
        (_IDLE,),
        "The clock of kafkalog is moved by three hours in this step. That of Kafka is not, so its tasks do not run.",
    ),
    Difference(
        "none",
        (METADATA,),
        (_FIRST_START, *_STOPS, *_RESTARTS),
        "Kafka writes records about the broker, the controller and the quorum when it starts and stops. The metadata "
        "of kafkalog are in the files `kafkalog.*` of the log directory, which only requests change.",
    ),
    Difference("none", (" leader-epoch-checkpoint", *_PARTITION_DIRECTORIES), _RESTARTS, _EPOCH_REASON),
    Difference("fewer", _PARTITION_DIRECTORIES, _RESTARTS, _EPOCH_REASON),
    Difference(
        "fewer",
        (" .log",),
        _STOPS,
        "Kafka forces a `.log` more than once at a clean shutdown: when it flushes and when it closes the log.",
    ),
    Difference(
        "fewer",
        _INDEXES,
        (_STOP,),
        "Kafka closes all logs. kafkalog opens a log at its first use, and one of the partitions was never used: all "
        "its files are empty and were forced when they were created.",
    ),
    Difference(
        "more",
        ("log directory",),
        (_STOP,),
        "kafkalog forces the name of `.kafka_cleanshutdown` as well.",
    ),
    Difference(
        "more",
        _PARTITION_DIRECTORIES,
        (*_STOPS, "Produce after the restart", _ANOTHER),
        "The first flush after a log was opened forces its directory, since recovery may have renamed files.",
    ),
    Difference("more", ("topic .log", "topic directory"), (_RECOVERY,), _RECOVERED_REASON, _STRICT),
    Difference("late", ("topic directory",), (_RECOVERY,), _RECOVERED_REASON, _STRICT),
)
"""All differences, by which the notes of docs/fsyncs.md are numbered."""
