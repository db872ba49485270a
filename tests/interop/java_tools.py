"""Runs of Kafka's command-line tools, in order, and their output without values that differ from run to run.

`python -m tests.interop.java_tools` asks them of a real Kafka and keeps its answers in kafka-4.3.0-tools.json.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from tests.interop.real_kafka import VERSION, RealKafka, try_tool

RECORDED = Path(__file__).with_name(f"kafka-{VERSION}-tools.json")
PROPERTIES = {"node.id": 1, "num.partitions": 1, "log.retention.ms": -1, "group.initial.rebalance.delay.ms": 0}
"""Of the broker that is asked; RealKafka has the same."""

_LINES = "k1:one\nk2:two\nk3:three\nk1:four\nk5:NULL\n"
_KEYED = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
_SHOWN = tuple(
    part
    for name in ("print.key", "print.partition", "print.offset", "print.headers")
    for part in ("--formatter-property", f"{name}=true")
)


class Step(NamedTuple):
    """One run of a tool. `$server` in an argument stands for host:port, `$file` for a file that holds `file`.

    `ordered`: the order of its lines means something.
    """

    name: str
    tool: str
    arguments: str
    stdin: str | None = None
    file: str = ""
    ordered: bool = True


def steps() -> Iterator[Step]:
    """The whole scenario. Topic `stamped` is filled by `prepare`."""
    topics = "--bootstrap-server $server --topic orders"
    yield Step("create a topic", "TopicCommand", f"{topics} --create --partitions 3 --config retention.ms=1000000")
    yield Step("create it again", "TopicCommand", f"{topics} --create --partitions 3")
    yield Step("replicas that are not there", "TopicCommand", f"{topics}2 --create --replication-factor 3")
    yield Step("more partitions", "TopicCommand", f"{topics} --alter --partitions 5")
    yield Step("fewer partitions", "TopicCommand", f"{topics} --alter --partitions 2")
    yield Step("describe a topic", "TopicCommand", f"{topics} --describe")
    yield Step("list topics", "TopicCommand", "--bootstrap-server $server --list --exclude-internal")
    yield Step("produce lines", "ConsoleProducer", f"{topics} --sync --compression-codec lz4 "
               f"--reader-property null.marker=NULL {' '.join(_KEYED)}", stdin=_LINES)  # fmt: skip
    yield Step("produce with headers", "ConsoleProducer", f"{topics} --sync --reader-property parse.headers=true "
               "--reader-property parse.key=true", stdin="h1:v1,h2:v2\tk9\theadered\n")  # fmt: skip
    yield Step("consume", "ConsoleConsumer", f"{topics} --from-beginning --max-messages 6 --group readers "
               f"--timeout-ms 30000 {' '.join(_SHOWN)}", ordered=False)  # fmt: skip
    yield Step("the earliest offsets", "GetOffsetShell", "--bootstrap-server $server --topic stamped --time -2")
    yield Step("the latest offsets", "GetOffsetShell", "--bootstrap-server $server --topic stamped --time -1")
    yield Step("the largest timestamp", "GetOffsetShell", "--bootstrap-server $server --topic stamped --time -3")
    yield Step("offsets of a time", "GetOffsetShell", "--bootstrap-server $server --topic stamped --time 1700000005000")
    yield Step(
        "offsets behind the end", "GetOffsetShell", "--bootstrap-server $server --topic stamped --time 1900000000000"
    )
    yield Step("offsets of no topic", "GetOffsetShell", "--bootstrap-server $server --topic nothing")
    yield Step("delete records", "DeleteRecordsCommand", "--bootstrap-server $server --offset-json-file $file",
               file=_deletion(4))  # fmt: skip
    yield Step("delete records behind the end", "DeleteRecordsCommand",
               "--bootstrap-server $server --offset-json-file $file", file=_deletion(400))  # fmt: skip
    yield Step("the earliest offsets then", "GetOffsetShell", "--bootstrap-server $server --topic stamped --time -2")
    yield Step("log directories", "LogDirsCommand", "--bootstrap-server $server --describe --topic-list stamped")
    groups = "--bootstrap-server $server --group readers"
    yield Step("list groups", "ConsumerGroupCommand", "--bootstrap-server $server --list")
    yield Step("list states of groups", "ConsumerGroupCommand", "--bootstrap-server $server --list --state")
    yield Step("describe a group", "ConsumerGroupCommand", f"{groups} --describe", ordered=False)
    yield Step("describe its state", "ConsumerGroupCommand", f"{groups} --describe --state")
    yield Step("describe its members", "ConsumerGroupCommand", f"{groups} --describe --members")
    reset = f"{groups} --reset-offsets --topic orders"
    yield Step("would reset offsets", "ConsumerGroupCommand", f"{reset} --to-earliest --dry-run", ordered=False)
    yield Step("reset offsets", "ConsumerGroupCommand", f"{reset}:0 --to-offset 0 --execute")
    yield Step("delete offsets", "ConsumerGroupCommand", f"{groups} --delete-offsets --topic orders:1")
    yield Step("describe the group then", "ConsumerGroupCommand", f"{groups} --describe", ordered=False)
    yield Step("delete a group", "ConsumerGroupCommand", f"{groups} --delete")
    yield Step("delete no group", "ConsumerGroupCommand", f"{groups} --delete")
    yield Step("describe no group", "ConsumerGroupCommand", f"{groups} --describe")
    configs = "--bootstrap-server $server --entity-type topics --entity-name orders"
    yield Step("alter a topic's configuration", "ConfigCommand",
               f"{configs} --alter --add-config max.message.bytes=200000,cleanup.policy=[compact,delete]")  # fmt: skip
    yield Step("describe it", "ConfigCommand", f"{configs} --describe")
    yield Step("take one away", "ConfigCommand", f"{configs} --alter --delete-config cleanup.policy")
    yield Step("describe it then", "ConfigCommand", f"{configs} --describe")
    yield Step("a value that is not allowed", "ConfigCommand", f"{configs} --alter --add-config retention.ms=-7")
    brokers = "--bootstrap-server $server --entity-type brokers"
    yield Step("alter a broker's configuration", "ConfigCommand",
               f"{brokers} --entity-name 1 --alter --add-config num.io.threads=9")  # fmt: skip
    yield Step("alter that of all brokers", "ConfigCommand",
               f"{brokers} --entity-default --alter --add-config message.max.bytes=2000000")  # fmt: skip
    yield Step("describe a broker", "ConfigCommand", f"{brokers} --entity-name 1 --describe")
    yield Step("what cannot change", "ConfigCommand", f"{brokers} --entity-name 1 --alter --add-config node.id=9")
    yield from of_clusters()
    yield Step(
        "topics with overrides",
        "TopicCommand",
        "--bootstrap-server $server --describe --exclude-internal --topics-with-overrides",
    )
    yield Step("delete a topic", "TopicCommand", f"{topics} --delete")
    yield Step("describe no topic", "TopicCommand", f"{topics} --describe")


def of_clusters() -> Iterator[Step]:
    """Return the steps about brokers and controllers rather than topics and groups."""
    server = "--bootstrap-server $server"
    for what in ("--status", "--replication"):
        yield Step(f"the quorum, {what}", "MetadataQuorumCommand", f"{server} describe {what}")
    yield Step("features", "FeatureCommand", f"{server} describe")
    yield Step("would downgrade", "FeatureCommand", f"{server} downgrade --feature share.version=0 --dry-run")
    yield Step("upgrade", "FeatureCommand", f"{server} upgrade --feature transaction.version=2")
    yield Step("would downgrade metadata", "FeatureCommand",
               f"{server} downgrade --feature metadata.version=21 --dry-run")  # fmt: skip
    yield Step("unregister a broker", "ClusterTool", f"unregister {server} --id 7")
    for name, arguments in {
        "subscribe to metrics": "--alter --name M1 --metrics org.apache.kafka.producer.,org.apache.kafka.consumer. "
        "--interval 1000 --match client_id=a.*,client_software_name=apache-kafka-java",
        "too often": "--alter --name M2 --interval 50",
        "match nobody": "--alter --name M2 --match nonsense=a",
        "subscribe to all": "--alter --name M3 --metrics *",
        "list subscriptions": "--list",
        "describe subscriptions": "--describe",
        "describe no subscription": "--describe --name nothing",
        "delete a subscription": "--delete --name M1",
        "delete no subscription": "--delete --name nothing",
        "list subscriptions then": "--list",
    }.items():
        yield Step(name, "ClientMetricsCommand", f"{server} {arguments}")
    configs = f"{server} --entity-type client-metrics --entity-name M4"
    yield Step(
        "configure a subscription", "ConfigCommand", f"{configs} --alter --add-config interval.ms=500,metrics=[a,b]"
    )
    yield Step("describe its configuration", "ConfigCommand", f"{configs} --describe")
    yield Step("take from it", "ConfigCommand", f"{configs} --alter --delete-config interval.ms")
    moves = f"{server} --reassignment-json-file $file"
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    yield Step("move to where it is", tool, f"{moves} --execute", file=_move("$dir"))
    yield Step("is it there", tool, f"{moves} --verify", file=_move("$dir"))
    yield Step("move to nowhere", tool, f"{moves} --execute", file=_move("/nowhere"))
    tokens = f"{server} --command-config /dev/null"
    for name, arguments in {
        "create a token": "--create --max-life-time-period -1 --renewer-principal User:a",
        "describe tokens": "--describe",
        "renew a token": "--renew --renew-time-period -1 --hmac abcd",
        "expire a token": "--expire --expiry-time-period -1 --hmac abcd",
    }.items():
        yield Step(name, "DelegationTokenCommand", f"{tokens} {arguments}")


def _move(directory: str) -> str:
    moved = {"topic": "orders", "partition": 0, "replicas": [1], "log_dirs": [directory]}
    return json.dumps({"version": 1, "partitions": [moved]})


def prepare(server: str) -> None:
    """Topic `stamped`: ten records a second apart, one batch each, so that its size says something."""
    producer = Producer({"bootstrap.servers": server, "linger.ms": 0})
    for number in range(10):
        producer.produce("stamped", b"value %d" % number, timestamp=1_700_000_000_000 + 1000 * number, partition=0)
        if producer.flush(120):
            raise RuntimeError("a record was not acknowledged")


def ask(step: Step, server: str, data_dir: Path) -> list[str]:
    """Run a tool; return its output, followed by `exit 1` if that is its exit code."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(step.file.replace("$dir", str(data_dir)))
        file.flush()
        arguments = [part.replace("$server", server).replace("$file", file.name) for part in step.arguments.split()]
        ran = try_tool(step.tool, *arguments, stdin=step.stdin)
    lines = (
        (ran.stdout.rstrip() + _told_on_stderr(ran.stderr)).replace(str(data_dir), "$dir").replace(server, "$server")
    )
    told = [" ".join(re.sub(_VARIES, "$varies", line).split()) for line in lines.splitlines()]
    told = [line for line in told if line and not re.match(_LOGGED, line)]
    if ran.returncode:
        told.append(f"exit {ran.returncode}")
    return told if step.ordered else sorted(told)


_VARIES = (
    r"(?<=TopicId: )\S+|(?<=ClusterId: )\s*\S+|(?<=HighWatermark: )\s*\d+|(?<=Epoch: )\d+$|\w+://127.0.0.1:\d+|\w+://\$server"
    r"|(?<=AAAAAAAAAAAAAAAAAAAAAA).*(?=Leader)|(?<=streams.version ).*"
)
"""Ids, ends of logs and times; and streams.version, which has one level here."""
_LOGGED = r"\d{4}-\d\d-\d\dT|at |Caused by: "  # lines of the tool's own log, and of stack traces


def _told_on_stderr(text: str) -> str:
    """Without warnings of the tool's own and without stack traces."""
    kept = [line for line in text.splitlines() if "Exception: " in line or line.startswith("Error")]
    return "".join("\n" + line for line in kept)


def _deletion(offset: int) -> str:
    return json.dumps({"partitions": [{"topic": "stamped", "partition": 0, "offset": offset}], "version": 1})


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, RealKafka(directory, PROPERTIES, short_lived=True) as kafka:
        prepare(kafka.bootstrap)
        told = {step.name: ask(step, kafka.bootstrap, kafka.data_dir) for step in steps()}
    RECORDED.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
