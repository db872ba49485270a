"""Broker properties of tiered storage. No effect here."""

from __future__ import annotations

from broker.config.definition import Between, NotEmpty, Property, PropertyType, Update

BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
LONG = PropertyType.LONG
MEDIUM = "medium"
LOW = "low"
CLUSTER = Update.CLUSTER_WIDE

# fmt: off
TIERED_PROPERTIES = (
    Property("log.local.retention.ms", LONG, "-2", Between(-2), MEDIUM,
             "How long a segment stays on this disk once it is in remote storage; -2: as log.retention.ms.",
             CLUSTER),
    Property("log.local.retention.bytes", LONG, "-2", Between(-2), MEDIUM,
             "How large the local part of a partition may become; -2: as log.retention.bytes.", CLUSTER),
    Property("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false", None, MEDIUM,
             "Whether a new follower begins at the last offset in remote storage.", CLUSTER),
    Property("remote.log.storage.system.enable", BOOLEAN, "false", None, MEDIUM, "Whether tiered storage is on."),
    Property("remote.log.storage.manager.class.name", STRING, None, NotEmpty(), MEDIUM,
             "A class that stores segments remotely."),
    Property("remote.log.storage.manager.class.path", STRING, None, None, MEDIUM, "Class path of that class."),
    Property("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NotEmpty(), MEDIUM,
             "Prefix of that class's own properties."),
    Property("remote.log.metadata.manager.class.name",
             STRING,
             "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
             NotEmpty(),
             MEDIUM,
             "A class that stores metadata of remote segments."),
    Property("remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM, "Class path of that class."),
    Property("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NotEmpty(), MEDIUM,
             "Prefix of that class's own properties."),
    Property("remote.log.metadata.manager.listener.name", STRING, None, NotEmpty(), MEDIUM,
             "Listener that the metadata manager uses."),
    Property("remote.log.metadata.custom.metadata.max.bytes", INT, "128", Between(0), LOW,
             "Most bytes of custom metadata per segment."),
    Property("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824", Between(1), LOW,
             "Bytes on disk for indexes of remote segments.", CLUSTER),
    Property("remote.log.manager.thread.pool.size", INT, "2", Between(1), MEDIUM, "Threads for tiered storage."),
    Property("remote.log.manager.copier.thread.pool.size", INT, "10", Between(1), MEDIUM,
             "Threads that copy segments.", CLUSTER),
    Property("remote.log.manager.expiration.thread.pool.size", INT, "10", Between(1), MEDIUM,
             "Threads that delete expired remote segments.", CLUSTER),
    Property("remote.log.manager.follower.thread.pool.size", INT, "2", Between(1), MEDIUM,
             "Threads for partitions that this node follows.", CLUSTER),
    Property("remote.log.manager.task.interval.ms", LONG, "30000", Between(1), LOW,
             "How often tiered storage is looked after."),
    Property("remote.log.manager.copy.max.bytes.per.second", LONG, "9223372036854775807", Between(1), MEDIUM,
             "Bytes per second that may be copied out.", CLUSTER),
    Property("remote.log.manager.copy.quota.window.num", INT, "11", Between(1), MEDIUM, "Samples kept for that quota."),
    Property("remote.log.manager.copy.quota.window.size.seconds", INT, "1", Between(1), MEDIUM,
             "Length of such a sample."),
    Property("remote.log.manager.fetch.max.bytes.per.second", LONG, "9223372036854775807", Between(1), MEDIUM,
             "Bytes per second that may be fetched.", CLUSTER),
    Property("remote.log.manager.fetch.quota.window.num", INT, "11", Between(1), MEDIUM,
             "Samples kept for that quota."),
    Property("remote.log.manager.fetch.quota.window.size.seconds", INT, "1", Between(1), MEDIUM,
             "Length of such a sample."),
    Property("remote.log.reader.threads", INT, "10", Between(1), MEDIUM,
             "Threads that read remote segments.", CLUSTER),
    Property("remote.log.reader.max.pending.tasks", INT, "100", Between(1), MEDIUM,
             "Reads of remote segments that may wait."),
    Property("remote.fetch.max.wait.ms", INT, "500", Between(1), MEDIUM,
             "How long a fetch from remote storage may wait.", CLUSTER),
    Property("remote.list.offsets.request.timeout.ms", LONG, "30000", Between(1), MEDIUM,
             "How long ListOffsets may wait for remote storage.", CLUSTER),
)
# fmt: on
