"""Broker properties of the coordinators: groups, committed offsets, transactions."""

from __future__ import annotations

from broker.config.definition import Between, OneOf, Property, PropertyType, Update

BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
SHORT = PropertyType.SHORT
LONG = PropertyType.LONG
LIST = PropertyType.LIST
HIGH = "high"
MEDIUM = "medium"
LOW = "low"
CLUSTER = Update.CLUSTER_WIDE

# fmt: off
GROUP_PROPERTIES = (
    Property("group.min.session.timeout.ms", INT, "6000", None, MEDIUM,
             "Shortest session timeout a group member may ask for."),
    Property("group.max.session.timeout.ms", INT, "1800000", None, MEDIUM,
             "Longest session timeout a group member may ask for."),
    Property("group.initial.rebalance.delay.ms", INT, "3000", None, MEDIUM,
             "How long an empty group waits for more members before its first rebalance."),
    Property("group.max.size", INT, "2147483647", Between(1), MEDIUM, "Most members of a group."),
    Property("group.coordinator.threads", INT, "4", Between(1), HIGH, "Threads of the group coordinator."),
    Property("group.coordinator.background.threads", INT, "2", Between(1), HIGH,
             "Threads of the group coordinator for work in the background."),
    Property("group.coordinator.append.linger.ms", INT, "-1", Between(-1), MEDIUM,
             "How long the coordinator gathers records before it writes them; -1: it decides itself."),
    Property("group.coordinator.cached.buffer.max.bytes", INT, "1048588", Between(524288), MEDIUM,
             "Largest buffer that the coordinator keeps for reuse.", CLUSTER),
    Property("group.coordinator.rebalance.protocols", LIST, "classic,consumer,streams",
             OneOf(("consumer", "classic", "share", "streams")), MEDIUM, "Rebalance protocols that are served."),
    Property("group.consumer.session.timeout.ms", INT, "45000", Between(1), MEDIUM,
             "Session timeout of members with the consumer protocol (KIP-848)."),
    Property("group.consumer.min.session.timeout.ms", INT, "45000", Between(1), MEDIUM,
             "Smallest group-level session timeout of consumer groups."),
    Property("group.consumer.max.session.timeout.ms", INT, "60000", Between(1), MEDIUM,
             "Largest group-level session timeout of consumer groups."),
    Property("group.consumer.heartbeat.interval.ms", INT, "5000", Between(1), MEDIUM,
             "Heartbeat interval of members with the consumer protocol."),
    Property("group.consumer.min.heartbeat.interval.ms", INT, "5000", Between(1), MEDIUM,
             "Smallest group-level heartbeat interval of consumer groups."),
    Property("group.consumer.max.heartbeat.interval.ms", INT, "15000", Between(1), MEDIUM,
             "Largest group-level heartbeat interval of consumer groups."),
    Property("group.consumer.max.size", INT, "2147483647", Between(1), MEDIUM, "Most members of a consumer group."),
    Property("group.consumer.assignors", LIST, "uniform,range", None, MEDIUM,
             "Assignors on the broker's side for consumer groups; the first is the default."),
    Property("group.consumer.migration.policy", STRING, "bidirectional",
             OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), fold=True), MEDIUM,
             "Whether classic and consumer groups may turn into one another."),
    Property("group.consumer.assignment.interval.ms", INT, "1000", Between(0), MEDIUM,
             "Shortest time between two assignments of a consumer group.", CLUSTER),
    Property("group.consumer.min.assignment.interval.ms", INT, "0", Between(0), MEDIUM,
             "Smallest group-level assignment interval of consumer groups."),
    Property("group.consumer.max.assignment.interval.ms", INT, "15000", Between(0), MEDIUM,
             "Largest group-level assignment interval of consumer groups."),
    Property("offset.metadata.max.bytes", INT, "4096", None, HIGH,
             "Most bytes of text that may be kept with a committed offset."),
    Property("offsets.load.buffer.size", INT, "5242880", Between(1), HIGH,
             "Bytes read at a time when committed offsets are loaded."),
    Property("offsets.topic.replication.factor", SHORT, "3", Between(1), HIGH, "Replicas of __consumer_offsets."),
    Property("offsets.topic.num.partitions", INT, "50", Between(1), HIGH, "Partitions of __consumer_offsets."),
    Property("offsets.topic.segment.bytes", INT, "104857600", Between(1), HIGH,
             "Size of a segment of __consumer_offsets."),
    Property("offsets.topic.compression.codec", INT, "0", None, HIGH,
             "Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    Property("offsets.retention.minutes", INT, "10080", Between(1), HIGH,
             "Committed offsets are dropped this long after their group became empty."),
    Property("offsets.retention.check.interval.ms", LONG, "600000", Between(1), HIGH,
             "How often committed offsets are looked through for expired ones."),
    Property("offsets.commit.timeout.ms", INT, "5000", Between(1), HIGH,
             "How long a commit waits for its record to be written."),
    Property("transactional.id.expiration.ms", INT, "604800000", Between(1), HIGH,
             "A transactional id is forgotten when it was not used for this long."),
    Property("transaction.max.timeout.ms", INT, "900000", Between(1), HIGH,
             "Longest transaction timeout a producer may ask for."),
    Property("transaction.state.log.min.isr", INT, "2", Between(1), HIGH,
             "min.insync.replicas of __transaction_state."),
    Property("transaction.state.log.load.buffer.size", INT, "5242880", Between(1), HIGH,
             "Bytes read at a time when transactions are loaded."),
    Property("transaction.state.log.replication.factor", SHORT, "3", Between(1), HIGH,
             "Replicas of __transaction_state."),
    Property("transaction.state.log.num.partitions", INT, "50", Between(1), HIGH, "Partitions of __transaction_state."),
    Property("transaction.state.log.segment.bytes", INT, "104857600", Between(1), HIGH,
             "Size of a segment of __transaction_state."),
    Property("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", Between(1), LOW,
             "How often open transactions are looked through for those that timed out."),
    Property("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", Between(1), LOW,
             "How often transactional ids are looked through for expired ones."),
    Property("transaction.partition.verification.enable", BOOLEAN, "true", None, LOW,
             "Whether a transactional append is checked against the coordinator's list of partitions.", CLUSTER),
    Property("transaction.two.phase.commit.enable", BOOLEAN, "false", None, LOW,
             "Whether transactions may take part in a two-phase commit."),
    Property("add.partitions.to.txn.retry.backoff.ms", INT, "20", Between(1), HIGH,
             "Pause before AddPartitionsToTxn is tried again."),
    Property("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", Between(0), HIGH,
             "Longest time over which AddPartitionsToTxn is tried again."),
)
# fmt: on
