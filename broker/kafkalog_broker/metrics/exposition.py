"""Table of the broker's metrics, and the samples of one scrape as prometheus_client's metric families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

# Every metric: name, kind, labels, meaning. docs/metrics.md and the dashboard are held to this table.
#
# Bounded: no label takes a value that a client makes up, but for topics and groups, of which MAX_TOPICS and
# MAX_GROUPS are shown, and for what clients push, of which there are at most MAX_CLIENT_SERIES.

MAX_TOPICS = 1000
"""Topics with series of their own, the first by name; `kafkalog_topics_left_out` says how many have none."""

MAX_GROUPS = 500  # groups with series of their own, with MAX_GROUP_TOPICS topics each

MAX_GROUP_TOPICS = 20

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of latencies: what small requests take, to the longest time for which clients wait by default."""


class Metric(NamedTuple):
    """A metric: its name, kind (`counter`, `gauge` or `histogram`), labels, and meaning."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_API, _TOPIC, _GROUP = ("api",), ("topic",), ("group",)
METRICS: dict[str, Metric] = {metric.name: metric for metric in (
    Metric("kafkalog_build_info", GAUGE, ("version",), "Always 1; the label is the release"),
    Metric("kafkalog_ready", GAUGE, (), "1 while /readyz says yes"),
    Metric("kafkalog_request_seconds", HISTOGRAM, _API, "From a request's frame to its response, waiting included"),
    Metric("kafkalog_request_bytes_total", COUNTER, _API, "Bytes of requests"),
    Metric("kafkalog_response_bytes_total", COUNTER, _API, "Bytes of responses, records included"),
    Metric("kafkalog_errors_total", COUNTER, ("api", "error"),
           "Error codes in answers, one for each entry that has one"),
    Metric("kafkalog_requests_closed_total", COUNTER, _API,
           "Requests that ended their connection instead of being answered"),
    Metric("kafkalog_topics", GAUGE, (), "Topics"),
    Metric("kafkalog_topics_left_out", GAUGE, (), "Topics without series of their own, as there are too many"),
    Metric("kafkalog_partitions", GAUGE, (), "Partitions"),
    Metric("kafkalog_partitions_open", GAUGE, (), "Partitions whose log is open: it was asked for since the start"),
    Metric("kafkalog_partitions_offline", GAUGE, (), "Partitions that cannot be served"),
    Metric("kafkalog_topic_partitions", GAUGE, _TOPIC, "Partitions of a topic"),
    Metric("kafkalog_topic_bytes_in_total", COUNTER, _TOPIC, "Bytes of batches appended to open logs"),
    Metric("kafkalog_topic_records_in_total", COUNTER, _TOPIC, "Offsets given to records appended to open logs"),
    Metric("kafkalog_topic_bytes_out_total", COUNTER, _TOPIC, "Bytes of batches that consumers were sent"),
    Metric("kafkalog_topic_log_size_bytes", GAUGE, _TOPIC, "Bytes of .log files of open logs"),
    Metric("kafkalog_topic_segments", GAUGE, _TOPIC, "Segments of open logs"),
    Metric("kafkalog_topic_lso_lag", GAUGE, _TOPIC,
           "Offsets from last stable offset to high watermark, the largest of the partitions"),
    Metric("kafkalog_topic_unflushed_records", GAUGE, _TOPIC, "Offsets above the recovery point of open logs"),
    Metric("kafkalog_topic_flushes_total", COUNTER, _TOPIC, "Flushes of open logs"),
    Metric("kafkalog_topic_flush_seconds_total", COUNTER, _TOPIC, "Time that they took"),
    Metric("kafkalog_log_dir_online", GAUGE, ("directory",), "1 while the log directory works"),
    Metric("kafkalog_log_dir_usable_bytes", GAUGE, ("directory",), "Free bytes of its file system"),
    Metric("kafkalog_cleaner_runs_total", COUNTER, (), "Logs compacted"),
    Metric("kafkalog_cleaner_read_bytes_total", COUNTER, (), "Bytes that compaction read"),
    Metric("kafkalog_cleaner_written_bytes_total", COUNTER, (), "Bytes that it kept of them"),
    Metric("kafkalog_cleaner_seconds_total", COUNTER, (), "Time that it took"),
    Metric("kafkalog_cleaner_uncleanable_partitions", GAUGE, (),
           "Logs that are not compacted any more, as something is wrong with them"),
    Metric("kafkalog_remote_copy_requests_total", COUNTER, (),
           "Segments that were begun to be copied to remote storage (RemoteCopyRequestsPerSec)"),
    Metric("kafkalog_remote_copy_errors_total", COUNTER, (),
           "Copies that failed, and are tried again (RemoteCopyErrorsPerSec)"),
    Metric("kafkalog_remote_copy_bytes_total", COUNTER, (),
           "Bytes of segments that were copied (RemoteCopyBytesPerSec)"),
    Metric("kafkalog_remote_fetch_requests_total", COUNTER, (),
           "Fetches of partitions that were read remotely (RemoteFetchRequestsPerSec)"),
    Metric("kafkalog_remote_fetch_errors_total", COUNTER, (), "Remote reads that failed (RemoteFetchErrorsPerSec)"),
    Metric("kafkalog_remote_fetch_bytes_total", COUNTER, (),
           "Bytes of batches from remote storage that consumers were sent (RemoteFetchBytesPerSec)"),
    Metric("kafkalog_remote_delete_requests_total", COUNTER, (),
           "Remote segments that were begun to be deleted (RemoteDeleteRequestsPerSec)"),
    Metric("kafkalog_remote_delete_errors_total", COUNTER, (),
           "Deletions that failed, and are tried again (RemoteDeleteErrorsPerSec)"),
    Metric("kafkalog_remote_copy_lag_segments", GAUGE, _TOPIC,
           "Closed segments that wait to be copied (RemoteCopyLagSegments)"),
    Metric("kafkalog_remote_copy_lag_bytes", GAUGE, _TOPIC, "Bytes of them (RemoteCopyLagBytes)"),
    Metric("kafkalog_remote_delete_lag_segments", GAUGE, _TOPIC,
           "Remote segments that wait to be deleted (RemoteDeleteLagSegments)"),
    Metric("kafkalog_remote_delete_lag_bytes", GAUGE, _TOPIC, "Bytes of them (RemoteDeleteLagBytes)"),
    Metric("kafkalog_remote_log_size_bytes", GAUGE, _TOPIC,
           "Bytes of a topic's remote segments (RemoteLogSizeBytes)"),
    Metric("kafkalog_remote_log_metadata_count", GAUGE, _TOPIC,
           "Remote segments that are known, unfinished ones too (RemoteLogMetadataCount)"),
    Metric("kafkalog_event_loop_longest_hold_seconds", GAUGE, ("what",),
           "The longest that a step of a request held the event loop since the start, if above 1 ms"),
    Metric("kafkalog_connections", GAUGE, ("listener",), "Open connections"),
    Metric("kafkalog_connections_opened_total", COUNTER, (), "Connections that were let in"),
    Metric("kafkalog_connections_refused_total", COUNTER, (), "Connections closed at once by a limit"),
    Metric("kafkalog_tls_handshakes_total", COUNTER, ("outcome",), "TLS handshakes, done or failed"),
    Metric("kafkalog_queued_request_bytes", GAUGE, (),
           "Bytes of requests in memory; counted where queued.max.request.bytes is set"),
    Metric("kafkalog_fetch_sessions", GAUGE, (), "Fetch sessions"),
    Metric("kafkalog_groups", GAUGE, ("state",), "Consumer groups"),
    Metric("kafkalog_groups_left_out", GAUGE, (), "Groups without series of their own, as there are too many"),
    Metric("kafkalog_group_members", GAUGE, _GROUP, "Members of a group"),
    Metric("kafkalog_group_lag", GAUGE, ("group", "topic"),
           "Offsets from what a group committed to the high watermark, of open logs"),
    Metric("kafkalog_share_groups", GAUGE, ("state",), "Share groups"),
    Metric("kafkalog_share_sessions", GAUGE, (), "Share sessions"),
    Metric("kafkalog_share_partitions", GAUGE, (), "Share partitions in use"),
    Metric("kafkalog_share_in_flight_offsets", GAUGE, (), "Offsets in flight in share partitions in use"),
    Metric("kafkalog_client_instances", GAUGE, (), "Clients that push metrics or asked what to push"),
    Metric("kafkalog_client_pushes_total", COUNTER, (), "Pushes of metrics by clients"),
    Metric("kafkalog_client_push_bytes_total", COUNTER, (), "Bytes of them, as they came"),
    Metric("kafkalog_client_metrics_left_out_total", COUNTER, (), "Numbers in them that were too many or too long"),
    Metric("kafkalog_client_metric", GAUGE, ("client_id", "client_instance_id", "metric", "attributes"),
           "A number that a client pushed last; the sum of them, where it pushes what was added"),
    Metric("kafkalog_quotas", GAUGE, (), "Entities that have quotas"),
    Metric("kafkalog_throttled_requests_total", COUNTER, ("quota",), "Requests, or connections, that had to wait"),
    Metric("kafkalog_throttle_seconds_total", COUNTER, ("quota",), "Time that they had to wait"),
    Metric("kafkalog_transactions", GAUGE, ("state",), "Transactional ids"),
    Metric("kafkalog_transaction_oldest_seconds", GAUGE, (), "Age of the oldest transaction that has not ended"),
)}  # fmt: skip

_FAMILIES = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily, HISTOGRAM: HistogramMetricFamily}


class Samples:
    """Samples of one scrape, by metric; prometheus_client takes it for a registry. Raises KeyError for a name that
    METRICS does not have."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {
            name: _FAMILIES[metric.kind](name, metric.meaning, labels=metric.labels) for name, metric in METRICS.items()
        }

    def add(self, name: str, value: float, *labels: str) -> None:
        """labels: values, in the order of the metric's labels."""
        self._families[name].add_metric(labels, value)

    def add_histogram(self, name: str, counts: Sequence[int], total: float, *labels: str) -> None:
        """counts: by bound, not cumulative; the last is that of values above all bounds. total: sum of the values."""
        buckets = list(zip((*map(repr, BUCKETS_S), "+Inf"), accumulate(counts), strict=True))
        self._families[name].add_metric(labels, buckets, total)

    def collect(self) -> Iterable[Family]:
        """The families that have samples, in the order of METRICS."""
        return [family for family in self._families.values() if family.samples]
