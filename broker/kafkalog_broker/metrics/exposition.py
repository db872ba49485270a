"""Samples as Prometheus text, in steps: prometheus_client writes a few hundred lines at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from prometheus_client import Metric as Family
from prometheus_client import generate_latest

from kafkalog_broker.metrics.definitions import BUCKETS_S, METRICS, Kind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_A_STEP = 100
"""Some 0.5 ms."""


class Samples:
    """What was found, by metric. Raises KeyError for a name that METRICS does not have."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[str, tuple[str, ...], float]]] = {name: [] for name in METRICS}

    def add(self, name: str, value: float, *labels: str) -> None:
        """labels: values, in the order of the metric's labels."""
        self._found[name].append(("", labels, value))

    def add_histogram(self, name: str, buckets: Sequence[int], total: float, *labels: str) -> None:
        """buckets: counts by bound, not added up; the last is of what is above all bounds. total: sum of the values."""
        lines, count = self._found[name], 0
        for bound, more in zip((*map(_bound, BUCKETS_S), "+Inf"), buckets, strict=True):
            count += more
            lines.append(("_bucket", (*labels, bound), count))
        lines.append(("_count", labels, count))
        lines.append(("_sum", labels, total))

    def text(self) -> Generator[None, None, bytes]:
        """The text, in steps."""
        pieces = []
        for name, found in self._found.items():
            metric = METRICS[name]
            labels = (*metric.labels, "le")
            for at in range(0, len(found), LINES_A_STEP):
                base = name.removesuffix("_total") if metric.kind is Kind.COUNTER else name
                family = Family(base, metric.meaning, metric.kind.value)
                for suffix, values, value in found[at : at + LINES_A_STEP]:
                    family.add_sample(name + suffix, dict(zip(labels, values, strict=False)), value)
                text = generate_latest(_One(family))
                # The two lines of comment at the top stand before the first samples only.
                pieces.append(text if at == 0 else text.split(b"\n", 2)[2])
                yield
        return b"".join(pieces)


class _One:
    """What prometheus_client takes for a registry."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        return (self._family,)


def _bound(seconds: float) -> str:
    return repr(seconds)
