"""Topic properties, and the broker property that each of them takes its default from (ServerTopicConfigSynonyms).

Where a broker property has relatives in other units (log.retention.ms, .minutes, .hours), the first is named here;
`broker_properties.relatives` knows the rest.
"""

from __future__ import annotations

from broker.config.definition import Between, OneOf, Property, PropertyType, ThrottledReplicas, Update, table

BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
LONG = PropertyType.LONG
DOUBLE = PropertyType.DOUBLE
LIST = PropertyType.LIST
MEDIUM = "medium"
CLUSTER = Update.CLUSTER_WIDE

# fmt: off
TOPIC_PROPERTY_LIST = (
    Property("cleanup.policy", LIST, "delete", OneOf(("compact", "delete")), MEDIUM,
             "What happens to old segments: delete, compact, or both. Empty: nothing.", CLUSTER),
    Property("compression.gzip.level", INT, "-1", Between(1, 9, also=-1), MEDIUM,
             "Level where the broker compresses with gzip.", CLUSTER),
    Property("compression.lz4.level", INT, "9", Between(1, 17), MEDIUM,
             "Level where the broker compresses with lz4.", CLUSTER),
    Property("compression.type", STRING, "producer",
             OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), MEDIUM,
             "Codec of new records in the log; producer: as they came.", CLUSTER),
    Property("compression.zstd.level", INT, "3", Between(-131072, 22), MEDIUM,
             "Level where the broker compresses with zstd.", CLUSTER),
    Property("delete.retention.ms", LONG, "86400000", Between(0), MEDIUM,
             "How long a tombstone stays after compaction.", CLUSTER),
    Property("file.delete.delay.ms", LONG, "60000", Between(0), MEDIUM,
             "How long a deleted file keeps its place under another name.", CLUSTER),
    Property("flush.messages", LONG, "9223372036854775807", Between(1), MEDIUM,
             "After how many records a partition is flushed to disk; 1: an acknowledged record is on disk.",
             CLUSTER),
    Property("flush.ms", LONG, "9223372036854775807", Between(0), MEDIUM,
             "How long a record may wait to be flushed.", CLUSTER),
    Property("follower.replication.throttled.replicas", LIST, "", ThrottledReplicas(), MEDIUM,
             "Replicas whose fetching as followers is throttled.", CLUSTER),
    Property("index.interval.bytes", INT, "4096", Between(0), MEDIUM,
             "After how many bytes of records an index gets its next entry.", CLUSTER),
    Property("internal.segment.bytes", INT, None, None, MEDIUM,
             "As segment.bytes, without its lower bound; for tests.", CLUSTER, internal=True),
    Property("leader.replication.throttled.replicas", LIST, "", ThrottledReplicas(), MEDIUM,
             "Replicas whose reading as leaders is throttled.", CLUSTER),
    Property("local.retention.bytes", LONG, "-2", Between(-2), MEDIUM,
             "How large the local part of a partition may become; -2: as retention.bytes.", CLUSTER),
    Property("local.retention.ms", LONG, "-2", Between(-2), MEDIUM,
             "How long a segment stays on this disk once it is in remote storage; -2: as retention.ms.", CLUSTER),
    Property("max.compaction.lag.ms", LONG, "9223372036854775807", Between(1), MEDIUM,
             "A record older than this is compacted at the next chance.", CLUSTER),
    Property("max.message.bytes", INT, "1048588", Between(0), MEDIUM,
             "Largest record batch, after compression, with its 12 leading bytes.", CLUSTER),
    Property("message.timestamp.after.max.ms", LONG, "3600000", Between(0), MEDIUM,
             "How far a record's timestamp may lie ahead of the broker's clock.", CLUSTER),
    Property("message.timestamp.before.max.ms", LONG, "9223372036854775807", Between(0), MEDIUM,
             "How far a record's timestamp may lie behind the broker's clock.", CLUSTER),
    Property("message.timestamp.type", STRING, "CreateTime", OneOf(("CreateTime", "LogAppendTime")), MEDIUM,
             "CreateTime: the producer's timestamps are kept. LogAppendTime: the broker sets them.", CLUSTER),
    Property("min.cleanable.dirty.ratio", DOUBLE, "0.5", Between(0, 1), MEDIUM,
             "Share of uncompacted bytes from which a log is compacted.", CLUSTER),
    Property("min.compaction.lag.ms", LONG, "0", Between(0), MEDIUM,
             "A record younger than this is not compacted.", CLUSTER),
    Property("min.insync.replicas", INT, "1", Between(1), MEDIUM,
             "How many in-sync replicas acks=all waits for.", CLUSTER),
    Property("preallocate", BOOLEAN, "false", None, MEDIUM,
             "Whether a new segment's file gets its full size at once.", CLUSTER),
    Property("remote.log.copy.disable", BOOLEAN, "false", None, MEDIUM,
             "Whether copying to remote storage is off.", CLUSTER),
    Property("remote.log.delete.on.disable", BOOLEAN, "false", None, MEDIUM,
             "Whether remote segments are deleted when remote storage is switched off.", CLUSTER),
    Property("remote.storage.enable", BOOLEAN, "false", None, MEDIUM,
             "Whether segments go to remote storage.", CLUSTER),
    Property("retention.bytes", LONG, "-1", None, MEDIUM,
             "A partition larger than this loses its oldest segments; -1: no limit.", CLUSTER),
    Property("retention.ms", LONG, "604800000", Between(-1), MEDIUM,
             "Segments older than this are deleted; -1: never.", CLUSTER),
    Property("segment.bytes", INT, "1073741824", Between(1048576), MEDIUM,
             "A segment is rolled before it grows beyond this.", CLUSTER),
    Property("segment.index.bytes", INT, "10485760", Between(4), MEDIUM,
             "Largest size of an offset index or time index.", CLUSTER),
    Property("segment.jitter.ms", LONG, "0", Between(0), MEDIUM,
             "Up to this much is taken off segment.ms at random, so that segments do not roll together.", CLUSTER),
    Property("segment.ms", LONG, "604800000", Between(1), MEDIUM,
             "A segment is rolled when its first and its newest record are this far apart.", CLUSTER),
    Property("unclean.leader.election.enable", BOOLEAN, "false", None, MEDIUM,
             "Whether a replica out of sync may become leader.", CLUSTER),
)
# fmt: on

TOPIC_PROPERTIES = table(TOPIC_PROPERTY_LIST)

# topic property -> broker property that is its default
BROKER_DEFAULTS = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
