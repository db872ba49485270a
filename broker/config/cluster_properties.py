"""Broker properties of a cluster of several nodes: controller quorum, replication, quotas, metrics. No effect here."""

from __future__ import annotations

from broker.config.definition import Between, Property, PropertyType, Update

BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
LONG = PropertyType.LONG
LIST = PropertyType.LIST
CLASS = PropertyType.CLASS
HIGH = "high"
MEDIUM = "medium"
LOW = "low"
CLUSTER = Update.CLUSTER_WIDE

CLUSTER_PROPERTIES = (
    Property(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        None,
        HIGH,
        "Whether the controller moves leaders back to the preferred replica.",
    ),
    Property(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        Between(1),
        HIGH,
        "How often the controller looks for such leaders.",
    ),
    Property(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        None,
        HIGH,
        "Whether a replica out of sync may become leader.",
        CLUSTER,
    ),
    Property(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        None,
        MEDIUM,
        "Whether a stopping broker hands over its partitions first.",
    ),
    Property(
        "broker.heartbeat.interval.ms", INT, "2000", None, MEDIUM, "How often a broker reports to the controller."
    ),
    Property(
        "broker.session.timeout.ms", INT, "9000", None, MEDIUM, "After how long without a report a broker is fenced."
    ),
    Property(
        "initial.broker.registration.timeout.ms",
        INT,
        "60000",
        None,
        MEDIUM,
        "How long a broker tries to register before it gives up.",
    ),
    Property("controller.quorum.voters", LIST, "", None, HIGH, "The voters of the metadata quorum, id@host:port."),
    Property("controller.quorum.bootstrap.servers", LIST, "", None, HIGH, "Where a node asks for the metadata quorum."),
    Property(
        "controller.quorum.election.timeout.ms",
        INT,
        "1000",
        Between(0),
        HIGH,
        "How long a node waits for a leader before it asks for an election.",
    ),
    Property(
        "controller.quorum.fetch.timeout.ms",
        INT,
        "2000",
        Between(0),
        HIGH,
        "How long a follower goes without a fetch before it asks for an election.",
    ),
    Property(
        "controller.quorum.election.backoff.max.ms",
        INT,
        "1000",
        Between(0),
        HIGH,
        "Longest pause between two elections.",
    ),
    Property(
        "controller.quorum.append.linger.ms",
        INT,
        "25",
        Between(0),
        MEDIUM,
        "How long the quorum's leader gathers metadata records.",
    ),
    Property(
        "controller.quorum.request.timeout.ms", INT, "2000", Between(0), MEDIUM, "How long a quorum request may take."
    ),
    Property(
        "controller.quorum.retry.backoff.ms",
        INT,
        "20",
        Between(0),
        LOW,
        "Pause before a quorum request is tried again.",
    ),
    Property(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        "false",
        None,
        LOW,
        "Whether a controller joins the quorum by itself.",
    ),
    Property(
        "controller.quorum.fetch.max.bytes",
        INT,
        "1048576",
        Between(1),
        LOW,
        "Most bytes in a fetch of metadata records.",
    ),
    Property(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        "1048576",
        Between(1),
        LOW,
        "Most bytes in a fetch of a metadata snapshot.",
    ),
    Property(
        "controller.socket.timeout.ms", INT, "30000", None, MEDIUM, "Socket timeout of requests to the controller."
    ),
    Property(
        "metadata.log.dir", STRING, None, None, HIGH, "Directory of the metadata log; unset: the first of log.dirs."
    ),
    Property(
        "metadata.log.segment.bytes",
        INT,
        "1073741824",
        Between(8388608),
        HIGH,
        "Size of a segment of the metadata log.",
    ),
    Property(
        "metadata.log.segment.ms",
        LONG,
        "604800000",
        None,
        HIGH,
        "Age at which a segment of the metadata log is rolled.",
    ),
    Property(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        "20971520",
        Between(1),
        HIGH,
        "Bytes of metadata after which a snapshot is written.",
    ),
    Property(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        "3600000",
        Between(0),
        HIGH,
        "Time after which a snapshot of the metadata is written.",
    ),
    Property(
        "metadata.max.idle.interval.ms",
        INT,
        "500",
        Between(0),
        LOW,
        "How often the controller writes a record when nothing happens.",
    ),
    Property(
        "metadata.max.retention.bytes",
        LONG,
        "104857600",
        None,
        HIGH,
        "Size of the metadata log and its snapshots before old ones are deleted.",
    ),
    Property(
        "metadata.max.retention.ms",
        LONG,
        "604800000",
        None,
        HIGH,
        "Age at which metadata records and snapshots may be deleted.",
    ),
    Property(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        None,
        HIGH,
        "After how long behind the leader a replica counts as out of sync.",
    ),
    Property("replica.socket.timeout.ms", INT, "30000", None, HIGH, "Socket timeout of fetches by replicas."),
    Property("replica.socket.receive.buffer.bytes", INT, "65536", None, HIGH, "SO_RCVBUF of fetches by replicas."),
    Property(
        "replica.fetch.max.bytes", INT, "1048576", Between(0), MEDIUM, "Bytes per partition that a replica fetches."
    ),
    Property(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        Between(0),
        MEDIUM,
        "Bytes per answer that a replica fetches.",
    ),
    Property("replica.fetch.wait.max.ms", INT, "500", None, HIGH, "How long a replica's fetch may wait."),
    Property("replica.fetch.min.bytes", INT, "1", None, HIGH, "Bytes that a replica's fetch waits for."),
    Property("replica.fetch.backoff.ms", INT, "1000", Between(0), MEDIUM, "Pause after a failed fetch by a replica."),
    Property(
        "replica.selector.class", STRING, None, None, MEDIUM, "A class that chooses the replica a consumer reads from."
    ),
    Property("num.replica.fetchers", INT, "1", Between(1), HIGH, "Threads that fetch from each leader.", CLUSTER),
    Property(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        None,
        HIGH,
        "Threads that move replicas between log directories.",
    ),
    Property("quota.window.num", INT, "11", Between(1), LOW, "Samples kept for client quotas."),
    Property("quota.window.size.seconds", INT, "1", Between(1), LOW, "Length of such a sample."),
    Property("replication.quota.window.num", INT, "11", Between(1), LOW, "Samples kept for replication quotas."),
    Property("replication.quota.window.size.seconds", INT, "1", Between(1), LOW, "Length of such a sample."),
    Property(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        "11",
        Between(1),
        LOW,
        "Samples kept for quotas of moves between log directories.",
    ),
    Property(
        "alter.log.dirs.replication.quota.window.size.seconds", INT, "1", Between(1), LOW, "Length of such a sample."
    ),
    Property(
        "controller.quota.window.num", INT, "11", Between(1), LOW, "Samples kept for quotas of changes to the cluster."
    ),
    Property("controller.quota.window.size.seconds", INT, "1", Between(1), LOW, "Length of such a sample."),
    Property("client.quota.callback.class", CLASS, None, None, LOW, "A class that decides client quotas."),
    Property(
        "alter.config.policy.class.name", CLASS, None, None, LOW, "A class that may refuse changes of configuration."
    ),
    Property(
        "config.providers",
        LIST,
        "",
        None,
        LOW,
        "Names of providers that fill in values of the form ${provider:path:key}.",
        CLUSTER,
    ),
    Property(
        "metric.reporters",
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        None,
        LOW,
        "Classes that report metrics.",
        CLUSTER,
    ),
    Property("metrics.num.samples", INT, "2", Between(1), LOW, "Samples kept for metrics."),
    Property("metrics.sample.window.ms", LONG, "30000", Between(1), LOW, "Length of such a sample."),
    Property("metrics.recording.level", STRING, "INFO", None, LOW, "Which metrics are recorded."),
    Property("kafka.metrics.reporters", LIST, "", None, LOW, "Classes that report the older metrics."),
    Property("kafka.metrics.polling.interval.secs", INT, "10", Between(1), LOW, "How often those report."),
    Property("telemetry.max.bytes", INT, "1048576", Between(1), LOW, "Largest telemetry push of a client."),
)
