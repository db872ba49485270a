"""All metrics of the broker: name, kind, labels and meaning.

A test compares docs/metrics.md and the dashboard with this table. The number of series is bounded: label values are
chosen by clients only for topics and groups, of which MAX_TOPICS and MAX_GROUPS are exposed, and for metrics that
clients push, which `client_metrics.py` bounds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

MAX_TOPICS = 1000
"""Topics that have their own series, the first by name; `kafkalog_topics_left_out` is the number of the others."""

MAX_GROUPS = 500
"""Groups that have their own series; `kafkalog_groups_left_out` is the number of the others."""

MAX_GROUP_TOPICS = 20  # topics of a group that have a lag

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram, from a small request to the longest default wait of a client."""


class Kind(StrEnum):
    """Prometheus' type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """A metric of the table; `meaning` is its HELP text."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_API, _TOPIC, _GROUP = ("api",), ("topic",), ("group",)
METRICS: dict[str, Metric] = {metric.name: metric for metric in (
    Metric("kafkalog_build_info", _GAUGE, ("version",), "Always 1; the label is the version of kafkalog"),
    Metric("kafkalog_ready", _GAUGE, (), "1 while /readyz responds 200"),
    Metric("kafkalog_request_seconds", _HISTOGRAM, _API,
           "Time from receiving a request to its response, including waits"),
    Metric("kafkalog_request_bytes_total", _COUNTER, _API, "Bytes of requests"),
    Metric("kafkalog_response_bytes_total", _COUNTER, _API, "Bytes of responses, including records"),
    Metric("kafkalog_errors_total", _COUNTER, ("api", "error"),
           "Error codes in responses, counted for each entry of a response"),
    Metric("kafkalog_requests_closed_total", _COUNTER, _API,
           "Requests whose connection was closed instead of a response"),
    Metric("kafkalog_topics", _GAUGE, (), "Topics"),
    Metric("kafkalog_topics_left_out", _GAUGE, (), "Topics without series of their own, because there are too many"),
    Metric("kafkalog_partitions", _GAUGE, (), "Partitions"),
    Metric("kafkalog_partitions_open", _GAUGE, (), "Partitions whose log was opened since the start"),
    Metric("kafkalog_partitions_offline", _GAUGE, (), "Partitions that cannot be served"),
    Metric("kafkalog_topic_partitions", _GAUGE, _TOPIC, "Partitions of a topic"),
    Metric("kafkalog_topic_bytes_in_total", _COUNTER, _TOPIC, "Bytes of batches appended to open logs"),
    Metric("kafkalog_topic_records_in_total", _COUNTER, _TOPIC, "Offsets assigned to records in open logs"),
    Metric("kafkalog_topic_bytes_out_total", _COUNTER, _TOPIC, "Bytes of batches sent to consumers"),
    Metric("kafkalog_topic_log_size_bytes", _GAUGE, _TOPIC, "Bytes of .log files of open logs"),
    Metric("kafkalog_topic_segments", _GAUGE, _TOPIC, "Segments of open logs"),
    Metric("kafkalog_topic_lso_lag", _GAUGE, _TOPIC,
           "Largest number of offsets between last stable offset and high watermark of a partition"),
    Metric("kafkalog_topic_unflushed_records", _GAUGE, _TOPIC, "Offsets above the recovery point of open logs"),
    Metric("kafkalog_topic_flushes_total", _COUNTER, _TOPIC, "Flushes of open logs"),
    Metric("kafkalog_topic_flush_seconds_total", _COUNTER, _TOPIC, "Duration of the flushes of open logs"),
    Metric("kafkalog_log_dir_online", _GAUGE, ("directory",), "1 while the log directory is online"),
    Metric("kafkalog_log_dir_usable_bytes", _GAUGE, ("directory",),
           "Free bytes of the file system of the log directory"),
    Metric("kafkalog_cleaner_runs_total", _COUNTER, (), "Logs compacted"),
    Metric("kafkalog_cleaner_read_bytes_total", _COUNTER, (), "Bytes read by compaction"),
    Metric("kafkalog_cleaner_written_bytes_total", _COUNTER, (), "Bytes written by compaction"),
    Metric("kafkalog_cleaner_seconds_total", _COUNTER, (), "Duration of compaction"),
    Metric("kafkalog_cleaner_uncleanable_partitions", _GAUGE, (),
           "Logs that are no longer compacted, because compacting them failed"),
    Metric("kafkalog_remote_copy_requests_total", _COUNTER, (),
           "Started copies of segments to remote storage (RemoteCopyRequestsPerSec)"),
    Metric("kafkalog_remote_copy_errors_total", _COUNTER, (),
           "Copies that failed and are retried (RemoteCopyErrorsPerSec)"),
    Metric("kafkalog_remote_copy_bytes_total", _COUNTER, (),
           "Bytes of copied segments (RemoteCopyBytesPerSec)"),
    Metric("kafkalog_remote_fetch_requests_total", _COUNTER, (),
           "Partition fetches from remote storage (RemoteFetchRequestsPerSec)"),
    Metric("kafkalog_remote_fetch_errors_total", _COUNTER, (),
           "Failed reads from remote storage (RemoteFetchErrorsPerSec)"),
    Metric("kafkalog_remote_fetch_bytes_total", _COUNTER, (),
           "Bytes of batches from remote storage sent to consumers (RemoteFetchBytesPerSec)"),
    Metric("kafkalog_remote_delete_requests_total", _COUNTER, (),
           "Started deletions of remote segments (RemoteDeleteRequestsPerSec)"),
    Metric("kafkalog_remote_delete_errors_total", _COUNTER, (),
           "Deletions that failed and are retried (RemoteDeleteErrorsPerSec)"),
    Metric("kafkalog_remote_copy_lag_segments", _GAUGE, _TOPIC,
           "Closed segments that are not copied yet (RemoteCopyLagSegments)"),
    Metric("kafkalog_remote_copy_lag_bytes", _GAUGE, _TOPIC,
           "Bytes of closed segments that are not copied yet (RemoteCopyLagBytes)"),
    Metric("kafkalog_remote_delete_lag_segments", _GAUGE, _TOPIC,
           "Remote segments that are not deleted yet (RemoteDeleteLagSegments)"),
    Metric("kafkalog_remote_delete_lag_bytes", _GAUGE, _TOPIC,
           "Bytes of remote segments that are not deleted yet (RemoteDeleteLagBytes)"),
    Metric("kafkalog_remote_log_size_bytes", _GAUGE, _TOPIC,
           "Bytes of the remote segments of a topic (RemoteLogSizeBytes)"),
    Metric("kafkalog_remote_log_metadata_count", _GAUGE, _TOPIC,
           "Remote segments, including unfinished ones (RemoteLogMetadataCount)"),
    Metric("kafkalog_event_loop_longest_hold_seconds", _GAUGE, ("what",),
           "Longest time that one step of a request blocked the event loop since the start, if above 1 ms"),
    Metric("kafkalog_connections", _GAUGE, ("listener",), "Open connections"),
    Metric("kafkalog_connections_opened_total", _COUNTER, (), "Accepted connections"),
    Metric("kafkalog_connections_refused_total", _COUNTER, (), "Connections closed immediately because of a limit"),
    Metric("kafkalog_tls_handshakes_total", _COUNTER, ("outcome",), "TLS handshakes, done or failed"),
    Metric("kafkalog_queued_request_bytes", _GAUGE, (),
           "Bytes of requests in memory, if queued.max.request.bytes is set"),
    Metric("kafkalog_fetch_sessions", _GAUGE, (), "Fetch sessions"),
    Metric("kafkalog_groups", _GAUGE, ("state",), "Consumer groups"),
    Metric("kafkalog_groups_left_out", _GAUGE, (), "Groups without series of their own, because there are too many"),
    Metric("kafkalog_group_members", _GAUGE, _GROUP, "Members of a group"),
    Metric("kafkalog_group_lag", _GAUGE, ("group", "topic"),
           "Offsets between the committed offsets of a group and the high watermarks of open logs"),
    Metric("kafkalog_share_groups", _GAUGE, ("state",), "Share groups"),
    Metric("kafkalog_share_sessions", _GAUGE, (), "Share sessions"),
    Metric("kafkalog_share_partitions", _GAUGE, (), "Share partitions in use"),
    Metric("kafkalog_share_in_flight_offsets", _GAUGE, (), "Offsets in flight in share partitions in use"),
    Metric("kafkalog_client_instances", _GAUGE, (), "Clients that push metrics or requested their subscription"),
    Metric("kafkalog_client_pushes_total", _COUNTER, (), "Pushes of metrics by clients"),
    Metric("kafkalog_client_push_bytes_total", _COUNTER, (), "Bytes of pushes, before decompression"),
    Metric("kafkalog_client_metrics_left_out_total", _COUNTER, (),
           "Pushed values that were dropped because of a limit"),
    Metric("kafkalog_client_metric", _GAUGE, ("client_id", "client_instance_id", "metric", "attributes"),
           "Last value that a client pushed, or the sum of its deltas"),
    Metric("kafkalog_quotas", _GAUGE, (), "Entities that have quotas"),
    Metric("kafkalog_throttled_requests_total", _COUNTER, ("quota",), "Throttled requests or connections"),
    Metric("kafkalog_throttle_seconds_total", _COUNTER, ("quota",), "Throttle times of requests and connections"),
    Metric("kafkalog_transactions", _GAUGE, ("state",), "Transactional ids"),
    Metric("kafkalog_transaction_oldest_seconds", _GAUGE, (), "Age of the oldest transaction that has not ended"),
)}  # fmt: skip
