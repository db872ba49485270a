"""A broker for tests: a process of its own, in a directory of its own, on a free port, serving in well under a second.

    from kafkalog_broker.testing import running_broker

    with running_broker({"num.partitions": 3}, topics={"orders": 4}) as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

    with running_broker(security="SASL_SSL", users={"alice": "secret"}) as broker:
        Producer({"bootstrap.servers": broker.bootstrap, **broker.client("alice")})

With pytest, the fixture `kafkalog_broker` gives each test such a broker.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from kafkalog_broker import errors as broker_errors
from kafkalog_spark import errors

if TYPE_CHECKING:
    from kafkalog_broker.security.for_tests import SecurityForTests

START_SECONDS = 60  # a start takes less than one; recovery of a big log and a busy machine take longer
STOP_SECONDS = 60
_SERVES = re.compile(r"serves (?P<addresses>\S+:\d+(?: and \S+:\d+)*), log\.dirs ")

Topics = Mapping[str, int | Mapping[str, Any]]


class BrokerDied(RuntimeError):
    """The broker ended instead of serving. The text holds the end of its log."""


class RunningBroker:
    """One broker process. `properties`: Kafka's names; `log_dir`: its log directory, which outlives the broker.

    `log.dirs` among the properties gives it several; then `log_dir` only says where its log file lies. `security`: who
    may connect; without it everybody.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        properties: Mapping[str, object] | None = None,
        security: SecurityForTests | None = None,
    ) -> None:
        self.security = security
        self.log_dir = Path(log_dir)
        self.log_file = self.log_dir.with_name(self.log_dir.name + ".broker.log")
        self.properties = dict(properties or {})
        self.host, self.port = "127.0.0.1", 0
        self.ports: dict[str, int] = {}
        """Of its listeners, by name."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def log(self) -> str:
        """What the broker logged so far, over all its starts."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self, properties: Mapping[str, object] | None = None) -> str:
        """Start and wait until it serves; `bootstrap`. A restart listens on the port of the first start.

        `properties`: further ones, for this and later starts. Raises BrokerDied with what it said when it ends or does
        not serve in time.
        """
        if self.pid is not None:
            raise RuntimeError(f"already running as process {self.pid}")
        self.properties.update(properties or {})
        security = self.security
        protocol = "PLAINTEXT" if security is None else security.protocol
        settings: dict[str, object] = {
            "listeners": f"{protocol}://127.0.0.1:{self.port}",
            "log.dirs": str(self.log_dir),
        }
        settings |= ({} if security is None else security.properties()) | self.properties
        # -P: what lies in the current directory is not imported, whatever it is called.
        command = [sys.executable, "-P", "-m", "kafkalog_broker", "--stop-at-eof"]
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--override", f"{name}={text}"]
        for user in [] if security is None else security.scram_users():
            command += ["--add-scram", user]
        self.log_dir.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            # stdin is a pipe that closes when this process ends, however it ends: then the broker stops too.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": _python_path()},
                start_new_session=True,  # Ctrl-C is for the tests
            )
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout, START_SECONDS)
        found = _SERVES.search(line)
        if found is None:
            code = self._process.poll()
            self.kill()
            state = "does not serve" if code is None else f"ended with {code}"
            raise BrokerDied(f"the broker {state}: {self.log()[-3000:] or line}")
        addresses = [address.rpartition(":") for address in found["addresses"].split(" and ")]
        self.host, self.port = addresses[0][0].strip("[]"), int(addresses[0][2])
        names = [text.partition("://")[0].upper() for text in str(settings["listeners"]).split(",")]
        self.ports = {name: int(port) for name, (_, _, port) in zip(names, addresses, strict=False)}
        return self.bootstrap

    def stop(self) -> None:
        """A clean stop (SIGTERM). Raises RuntimeError when it takes too long or ends with an error."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the broker did not stop in {STOP_SECONDS} s: {self.log()[-3000:]}") from None
        finally:
            self._close_pipes()
        if code != 0:
            raise RuntimeError(f"the broker ended with {code}: {self.log()[-3000:]}")

    def kill(self) -> None:
        """kill -9: what a crash of the process leaves."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close_pipes()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        """A topic, through the CreateTopics API. Raises RuntimeError with the broker's words when it refuses."""
        from kafkalog_broker.protocol.client_codec import create_topic_request

        answer = self.ask(create_topic_request(name, partitions, configs or {}))
        for result in answer.topics:
            if result.error_code:
                raise RuntimeError(f"topic {name}: {result.error_code.name}: {result.error_message}")

    def ask(self, request: Any) -> Any:
        """Send one of kio's request entities over a connection of its own; the response entity. Raises OSError."""
        with self.connect() as connection:
            return ask(connection, request)

    def connect(self) -> socket.socket:
        """A connection that may be used with `ask`: with security, as the broker's own user. Raises OSError."""
        from kafkalog_broker.protocol.client_codec import plain_login_requests

        connection = socket.create_connection((self.host, self.port), 30)
        if self.security is None:
            return connection
        from kafkalog_broker.security.for_tests import ADMIN

        context = self.security.ssl_context(ADMIN)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=self.host)
        for request in plain_login_requests(ADMIN, self.security.password(ADMIN)) if self.security.has_sasl else ():
            answer = ask(connection, request)
            if answer.error_code:
                raise ConnectionError(f"not let in: {answer.error_code.name}")
        return connection

    def client(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """The properties with which confluent-kafka gets in, besides `bootstrap.servers`. user: the first of `users` by
        default. mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
        return {} if self.security is None else self.security.client(user, mechanism)

    def ssl_context(self, user: str | None = None) -> ssl.SSLContext | None:
        """For clients that take one (kafka-python, aiokafka); None without TLS."""
        return None if self.security is None else self.security.ssl_context(user)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout) if self._process is not None else ():
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None

    def __enter__(self) -> Self:
        if self.pid is None:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill() if error else self.stop()


@contextlib.contextmanager
def running_broker(
    properties: Mapping[str, object] | None = None,
    *,
    topics: Topics | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    security: str = "PLAINTEXT",
    users: Mapping[str, str] | None = None,
) -> Iterator[RunningBroker]:
    """A broker that serves until the block ends.

    `topics`: name to number of partitions, or to {"partitions": 3, "retention.ms": 1000}. `log_dir`: where it keeps its
    logs; without it, a temporary directory that is removed afterwards. `security`, `users`: SSL, SASL_PLAINTEXT or
    SASL_SSL, and who may connect, by name and password; `broker.client("alice")` is what a client needs for it.
    """
    directory = Path(log_dir) if log_dir is not None else Path(tempfile.mkdtemp(prefix="kafkalog-broker-")) / "data"
    wanted_security = None
    if security != "PLAINTEXT":
        from kafkalog_broker.security.for_tests import SecurityForTests  # with cryptography

        wanted_security = SecurityForTests(security, users)
    elif users:
        raise ValueError("users need security: SSL, SASL_PLAINTEXT or SASL_SSL")
    broker = RunningBroker(directory, properties, wanted_security)
    try:
        with broker:
            for name, wanted in (topics or {}).items():
                configs = {"partitions": wanted} if isinstance(wanted, int) else dict(wanted)
                broker.create_topic(name, configs.pop("partitions", 1), configs)
            yield broker
    finally:
        if log_dir is None:
            shutil.rmtree(directory.parent, ignore_errors=True)


def ask(connection: socket.socket, request: Any) -> Any:
    """Send one of kio's request entities and read its response entity. Raises OSError, also when the broker closes the
    connection instead of answering."""
    from kafkalog_broker.protocol.client_codec import decode_client_response

    return decode_client_response(request, exchange(connection, request))


def exchange(connection: socket.socket, request: Any) -> bytes:
    """As ask, but gives the answer as bytes, from its header on."""
    frame = frame_of(request)
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    return _receive(connection, struct.unpack(">i", _receive(connection, 4))[0])


def frame_of(request: Any) -> bytes:
    """One of kio's request entities with a header, without the size in front."""
    from kafkalog_broker.protocol.client_codec import encode_client_request

    return encode_client_request(request, "kafkalog-testing")


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection instead of answering")
        data += more
    return data


def _first_line(stream: IO[bytes], seconds: float) -> str:
    """What stands before the first line break, or before the end; "" when neither comes in time."""
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    end = time.monotonic() + seconds
    reader.join(max(0.0, end - time.monotonic()))
    return lines[0].decode(errors="replace") if lines else ""


def _python_path() -> str:
    """The project must be found in the child too when it runs from a source tree."""
    roots = (Path(str(module.__file__)).resolve().parent.parent for module in (broker_errors, errors))
    return os.pathsep.join([*dict.fromkeys(map(str, roots)), *filter(None, [os.environ.get("PYTHONPATH")])])
