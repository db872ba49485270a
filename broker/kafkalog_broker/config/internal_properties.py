"""Broker properties that Kafka keeps for its own tests: accepted, and described only where they are set."""

from __future__ import annotations

from kafkalog_broker.config.definition import Between, Property
from kafkalog_broker.config.table_words import BOOLEAN, DOUBLE, HIGH, INT, LONG, LOW, MEDIUM, STRING

# fmt: off
INTERNAL_PROPERTIES = (
    Property("controller.performance.always.log.threshold.ms", LONG, "2000", Between(0), MEDIUM,
             "Threshold for logging slow controller events.", internal=True),
    Property("controller.performance.sample.period.ms", LONG, "60000", Between(100), MEDIUM,
             "How often the controller's performance is logged.", internal=True),
    Property("group.consumer.regex.refresh.interval.ms", INT, "600000", Between(10000), MEDIUM,
             "How often topic patterns of consumer groups are matched again.", internal=True),
    Property("group.share.initialize.retry.interval.ms", INT, "30000", Between(1), LOW,
             "Pause before share state is initialised again.", internal=True),
    Property("group.share.persister.class.name",
             STRING,
             "org.apache.kafka.server.share.persister.DefaultStatePersister",
             None,
             MEDIUM,
             "A class that keeps share state.",
             internal=True),
    Property("internal.metadata.delete.delay.millis", LONG, "60000", None, LOW,
             "How long deleted metadata files stay.", internal=True),
    Property("internal.metadata.log.segment.bytes", INT, None, None, LOW,
             "Size of a segment of the metadata log, without a lower bound.", internal=True),
    Property("internal.metadata.max.batch.size.in.bytes", INT, "8388608", None, LOW,
             "Largest batch of metadata records.", internal=True),
    Property("log.initial.task.delay.ms", LONG, "30000", Between(0), LOW,
             "Pause before retention, flushing and checkpoints begin.", internal=True),
    Property("producer.id.expiration.check.interval.ms", INT, "600000", Between(1), LOW,
             "How often producer state is looked through for expired producers.", internal=True),
    Property("remote.log.index.file.cache.ttl.ms", LONG, "900000", Between(-1), LOW,
             "How long an index of a remote segment is kept.", internal=True),
    Property("remote.log.manager.task.retry.backoff.max.ms", LONG, "30000", Between(1), LOW,
             "Longest pause after a failed task of tiered storage.", internal=True),
    Property("remote.log.manager.task.retry.backoff.ms", LONG, "500", Between(1), LOW,
             "First pause after a failed task of tiered storage.", internal=True),
    Property("remote.log.manager.task.retry.jitter", DOUBLE, "0.2", Between(0, 0.5), LOW,
             "Random share of such a pause.", internal=True),
    Property("server.max.startup.time.ms", LONG, "9223372036854775807", Between(0), MEDIUM,
             "How long a start may take.", internal=True),
    Property("share.coordinator.cold.partition.snapshot.interval.ms", INT, "300000", Between(1), LOW,
             "How often share state that did not change is written again.", internal=True),
    Property("share.coordinator.state.topic.prune.interval.ms", INT, "300000", Between(1), LOW,
             "How often old share state is deleted.", internal=True),
    Property("unclean.leader.election.interval.ms", LONG, "300000", Between(1), MEDIUM,
             "How often the controller looks for partitions without a leader.", internal=True),
    Property("unstable.api.versions.enable", BOOLEAN, "false", None, HIGH,
             "Whether API versions that are not final are served.", internal=True),
    Property("unstable.feature.versions.enable", BOOLEAN, "false", None, HIGH,
             "Whether feature levels that are not final may be used.", internal=True),
)
# fmt: on
