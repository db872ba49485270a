"""Query of 40 records with format("kafkalog"), compared with a trivial Python source and with format("kafka")."""

from __future__ import annotations

import statistics
from functools import partial

from benchmarks.data import TINY, ensure
from benchmarks.report import Report, in_turn, ratio
from benchmarks.spark_session import SparkSession
from benchmarks.topics import home
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka

NOTHING = "benchmarks.sources:Nothing"


def main(report: Report, rounds: int = 15) -> None:
    """Report `collect()` of a topic with 4 partitions of 10 records, after warm-ups."""
    path = str(ensure([TINY]))
    connector = Connector.install()
    with (
        RealKafka(home()) as kafka,
        SparkSession(connector.conf, connector.python) as theirs,
        SparkSession() as ours,
    ):
        kafka_options = {"subscribe": TINY.name, "kafka.bootstrap.servers": kafka.bootstrap}
        log_options = {"subscribe": TINY.name}
        everything = {
            "kafkalog": partial(ours.run, "kafkalog", log_options, path=path, action="collect", expect=TINY.records),
            "nothing": partial(ours.run, "nothing", register=NOTHING, action="collect", expect=TINY.records),
            "kafka": partial(theirs.run, "kafka", kafka_options, action="collect", expect=TINY.records),
        }
        seconds = in_turn(everything, rounds=rounds, warmups=5)
    report.add(
        "tiny_query",
        "collect() of 40 records in 4 partitions",
        kafkalog_seconds=round(statistics.median(seconds["kafkalog"]), 3),
        nothing_seconds=round(statistics.median(seconds["nothing"]), 3),
        kafka_seconds=round(statistics.median(seconds["kafka"]), 3),
        x_time_of_nothing=round(ratio(seconds["kafkalog"], seconds["nothing"]), 2),
        x_kafka=round(ratio(seconds["kafka"], seconds["kafkalog"]), 2),
    )


if __name__ == "__main__":
    main(Report())
