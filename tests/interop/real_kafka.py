"""A real Apache Kafka for comparisons: one KRaft node on loopback.

    with RealKafka(tmp_path) as kafka:                 # starts; stops cleanly at the end
        kafka.create_topic("orders", 4, {"internal.segment.bytes": 100_000})
        kafka.bootstrap                                # "127.0.0.1:40213"
        kafka.stop()                                   # or kill(); files are in kafka.data_dir
        kafka.start({"log.index.interval.bytes": 1})   # with further broker properties
        rows = kafka.consume("orders")
        text = kafka.tool("DumpLogSegments", "--files", path)

For people: `python -m tests.interop.real_kafka start DIR`, `stop DIR`, `tool CLASS ARG...`.

The jars come from Maven once, into ~/.cache/kafkalog-interop/<version> (KAFKALOG_INTEROP_CACHE moves it).
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

VERSION = "4.3.0"
MIN_JAVA = 17  # Kafka 4's broker and tools
START_SECONDS = 120  # a start takes 4-8 s; recovery of a big log and a busy machine take longer
STOP_SECONDS = 120
LEARN_SECONDS = 60  # a broker learns of what its controller has changed in 0.05 s; a busy machine takes longer
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

# Kafka's tools live in several packages. Everything else is in org.apache.kafka.tools.
_TOOL_PACKAGES = {
    "StorageTool": "kafka.tools",
    "ConfigCommand": "kafka.admin",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
}

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafkalog</groupId><artifactId>interop</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"

_PR_SET_PDEATHSIG = 1  # sys/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: not in a forked process

_LOG4J = """<Configuration status="ERROR">
  <Appenders><File name="file" fileName="{path}"><PatternLayout pattern="[%d] %p %m (%c)%n"/></File></Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""


def cache_dir() -> Path:
    """Where jars and the connector's environment are kept between runs."""
    return Path(os.environ.get("KAFKALOG_INTEROP_CACHE") or Path.home() / ".cache" / "kafkalog-interop")


@cache
def available(version: str = VERSION) -> str | None:
    """Return why a real Kafka cannot run here, in one line, or None if it can."""
    if shutil.which("java") is None:
        return f"a real Kafka needs Java {MIN_JAVA} or newer on PATH"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) < MIN_JAVA:
        return (
            f"a real Kafka needs Java {MIN_JAVA} or newer, java -version says: {said.splitlines()[0] if said else ''}"
        )
    if not (cache_dir() / version / "done").exists() and shutil.which("mvn") is None:
        return "a real Kafka needs Maven (mvn) on PATH to fetch its jars, once"
    return None


def maven_copy(target: Path, artifacts: list[tuple[str, str, str]]) -> None:
    """Copy the jars of those (group, artifact, version) with all they depend on to `target`, once.

    Raises RuntimeError with Maven's own words when it fails.
    """
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may want to install at once
        if (target / "done").exists():
            return
        with tempfile.TemporaryDirectory() as work:
            dependencies = "".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
            Path(work, "pom.xml").write_text(_POM.format(dependencies=dependencies))
            _run_maven(work, "dependency:copy-dependencies", f"-DoutputDirectory={target}")
        (target / "done").touch()


def maven_jar(artifact: str, folder: Path) -> Path:
    """A jar, without what it depends on, in a folder; copied once. artifact: group:name:version, and :jar:classifier or
    :pom.

    Raises RuntimeError with Maven's own words when it fails.
    """
    _, name, version, kind, *classifier = *artifact.split(":"), *["jar"] * (artifact.count(":") < 3)
    path = folder / f"{'-'.join((name, version, *classifier))}.{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock, tempfile.TemporaryDirectory() as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _run_maven(work, "dependency:copy", f"-DoutputDirectory={folder}", f"-Dartifact={artifact}")
    return path


def _run_maven(directory: str, *arguments: str) -> None:
    if shutil.which("mvn") is None:
        raise RuntimeError("Maven (mvn) is not on PATH")
    ran = subprocess.run(["mvn", "-q", "-B", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"Maven could not do {' '.join(arguments)}: {(ran.stdout + ran.stderr)[-2000:]}")


def classpath(version: str = VERSION) -> str:
    """Java's class path for that Kafka; installs the jars at the first call."""
    reason = available(version)
    if reason:
        raise RuntimeError(reason)
    libs = cache_dir() / version
    if not (libs / "done").exists():
        maven_copy(
            libs,
            [
                ("org.apache.kafka", "kafka_2.13", version),
                ("org.apache.kafka", "kafka-tools", version),
                ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
            ],
        )
    return f"{libs}/*"


def run_tool(
    name: str, *args: object, version: str = VERSION, stdin: str | None = None, timeout: float = 300,
    command_prefix: Sequence[str] = (),
) -> str:  # fmt: skip
    """Run one of Kafka's command-line tools and return what it printed on stdout.

    `name`: a class, with or without its package. Raises RuntimeError with its output when it ends with another code
    than 0. Note that DumpLogSegments ends with 0 whatever it finds: read its text.
    """
    ran = try_tool(name, *args, version=version, stdin=stdin, timeout=timeout, command_prefix=command_prefix)
    if ran.returncode:
        raise RuntimeError(f"{name} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-2000:]}")
    return ran.stdout


def try_tool(
    name: str, *args: object, version: str = VERSION, stdin: str | None = None, timeout: float = 300,
    command_prefix: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Like `run_tool`, but accept any exit code."""
    package = _TOOL_PACKAGES.get(name, "org.apache.kafka.tools")
    java_class = name if "." in name else f"{package}.{name}"
    command = ["java", "-Xmx512m", *QUICK_JAVA, "-cp", classpath(version), java_class, *map(str, args)]
    command = [*command_prefix, *command]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout)


def learnt(ask: Callable[[], Any], expected: Any) -> Any:
    """Repeat a request until its response is as expected or LEARN_SECONDS are over; return the last response.

    A real Kafka's controller responds to a change before its broker has applied it.
    """
    end = time.monotonic() + LEARN_SECONDS
    while (answer := ask()) != expected and time.monotonic() < end:
        time.sleep(0.05)
    return answer


class RealKafka:
    """One Kafka node whose files are in `directory`. Not started by the constructor.

    `cluster_id`: given to nodes that are one cluster. `short_lived`:
    Java compiles quickly instead of well. That is two thirds of a start's processor time; not for what
    measures Kafka's speed. `java_options`: further ones, of the JVM. `secured`: the protocol, which is the name too, of
    a listener beside PLAINTEXT, on `secured_port`. `command_prefix`: put before the command lines of the broker and of
    the tool that formats its directory.
    """

    def __init__(
        self,
        directory: Path | str,
        properties: Mapping[str, object] | None = None,
        *,
        version: str = VERSION,
        short_lived: bool = False,
        cluster_id: str | None = None,
        java_options: Sequence[str] = (),
        secured: str | None = None,
        command_prefix: Sequence[str] = (),
    ):
        self.directory = Path(directory).resolve()
        self.version = version
        self.properties = dict(properties or {})
        self.cluster_id = cluster_id or base64.urlsafe_b64encode(b"k" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tuple[int, int] | None = None
        self._secured = secured
        self.secured_port = free_ports(self)[0] if secured else 0
        self._java_options = ["-Xmx1g", *(QUICK_JAVA if short_lived else ()), *java_options]
        self._command_prefix = list(command_prefix)

    @property
    def data_dir(self) -> Path:
        """The log directory (Kafka's log.dirs)."""
        return self.directory / "data"

    @property
    def bootstrap(self) -> str:
        """host:port for clients. Raises RuntimeError before the first start."""
        if self._ports is None:
            raise RuntimeError("this Kafka has not been started")
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int | None:
        """The broker's process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def server_log(self) -> str:
        """What the broker logged since its last start."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, properties: Mapping[str, object] | None = None, *, leave_running: bool = False) -> str:
        """Start (formatting the directory the first time), wait until it serves, return `bootstrap`.

        `properties`: further broker properties, for this and later starts. Raises RuntimeError with the end of the
        broker's log when it ends or does not serve in time. `leave_running`: it outlives this interpreter.
        """
        if self.pid:
            raise RuntimeError(f"already running as process {self.pid}")
        self.properties.update(properties or {})
        jars = classpath(self.version)
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._ports is None or not all(map(_is_free, self._ports)):
            self._ports = free_ports(self)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._all_properties().items()))
        log4j = self.directory / "log4j2.xml"
        log4j.write_text(_LOG4J.format(path=self.directory / "server.log"))
        if not (self.data_dir / "meta.properties").exists():
            arguments = ("format", "-t", self.cluster_id, "-c", config)
            run_tool("StorageTool", *arguments, version=self.version, command_prefix=self._command_prefix)
        (self.directory / "server.log").write_text("")
        command = ["java", *self._java_options, f"-Dlog4j2.configurationFile={log4j}", "-cp", jars, "kafka.Kafka"]
        with (self.directory / "out.log").open("wb") as out:
            self._process = subprocess.Popen(
                [*self._command_prefix, *command, str(config)],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the tests; they stop the broker themselves
                preexec_fn=None if leave_running else end_with_parent,
            )
        (self.directory / "pid").write_text(str(self._process.pid))
        if not leave_running:
            atexit.register(self.kill)
        self._wait_until_it_serves(self._process)
        return self.bootstrap

    def _all_properties(self) -> dict[str, object]:
        assert self._ports is not None
        port, controller = self._ports
        served, protocols = f"PLAINTEXT://127.0.0.1:{port}", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        if self._secured:
            served += f",{self._secured}://127.0.0.1:{self.secured_port}"
            protocols += f",{self._secured}:{self._secured}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{served},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": served,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": protocols,
            "log.dirs": self.data_dir,
            # One node: internal topics with one replica, and few partitions so that it starts and stops fast.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # The default of 128 MB is allocated at start, and a test's key map is small.
            "log.cleaner.dedupe.buffer.size": 2_000_000,
            # Test data carries timestamps of the past: the default of 7 days would delete it.
            "log.retention.ms": -1,
            **self.properties,
        }

    def _wait_until_it_serves(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while "Kafka Server started" not in self.server_log():
            if process.poll() is not None or time.monotonic() > end:
                state = "still starting" if process.poll() is None else f"ended with {process.returncode}"
                out = (self.directory / "out.log").read_text(errors="replace")
                self.kill()
                raise RuntimeError(f"Kafka {self.version} is {state}: {(self.server_log() + out)[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Clean shutdown (SIGTERM). Raises RuntimeError when it does not end in time. Does nothing when not running."""
        if not self._process or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"Kafka did not stop in {STOP_SECONDS} s: {self.server_log()[-2000:]}") from None

    def kill(self) -> None:
        """kill -9, a crash. Does nothing when not running."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill() if error else self.stop()

    def tool(self, name: str, *args: object, stdin: str | None = None, timeout: float = 300) -> str:
        """`run_tool` with this Kafka's version."""
        return run_tool(name, *args, version=self.version, stdin=stdin, timeout=timeout)

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """The directory of a partition."""
        return self.data_dir / f"{topic}-{partition}"

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic and wait until every partition has a leader.

        Segments smaller than 1 MiB: `internal.segment.bytes` (Kafka 4 refuses a small segment.bytes).
        """
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        settings = {key: str(value) for key, value in (config or {}).items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(START_SECONDS)
        end = time.monotonic() + START_SECONDS
        while True:
            found = admin.list_topics(topic, timeout=START_SECONDS).topics[topic]
            if len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values()):
                return
            if time.monotonic() > end:
                raise RuntimeError(f"{topic} has no leader after {START_SECONDS} s: {self.server_log()[-2000:]}")
            time.sleep(0.05)

    def consume(self, topic: str, *, isolation_level: str = "read_uncommitted") -> list[dict[str, Any]]:
        """Every record of a topic as librdkafka returns it, rows as in tests.golden_data, by partition and offset."""
        from tests.interop.consume import consume

        return consume(self.bootstrap, topic, isolation_level)


def end_with_parent() -> None:
    """Run in the new process: SIGTERM when the starting thread ends, however it ends. Linux only, a no-op elsewhere."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_ports(owner: object) -> tuple[int, int]:
    """Return two ports that are reserved as long as `owner` exists."""
    from kafkalog_broker.testing_support.kept_port import kept_port

    return kept_port(owner), kept_port(owner)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main(argv: list[str]) -> int:
    """start DIR [KEY=VALUE...] | stop DIR | kill DIR | tool CLASS ARG..."""
    match argv:
        case ["start", directory, *pairs]:
            kafka = RealKafka(directory, dict(pair.split("=", 1) for pair in pairs))
            print(kafka.start(leave_running=True))
        case ["stop" | "kill" as verb, directory]:
            pid = int(Path(directory, "pid").read_text())
            os.kill(pid, signal.SIGTERM if verb == "stop" else signal.SIGKILL)
        case ["tool", name, *args]:
            print(run_tool(name, *args), end="")
        case _:
            print(f"usage: python -m tests.interop.real_kafka {main.__doc__}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
