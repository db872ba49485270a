"""A broker for tests: a separate process with its own directory and a free port, which starts in less than a second.

    from kafkalog_broker.testing import running_broker

    rights = [allow("alice", "WRITE", topic="orders*")]
    with running_broker({"num.partitions": 3}, security="SASL_SSL", users={"alice": "secret"}, acls=rights) as broker:
        Producer({"bootstrap.servers": broker.bootstrap, **broker.client("alice")})

With pytest, the fixture `kafkalog_broker` gives each test such a broker (docs/testing.md).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from kafkalog_broker import errors as broker_errors
from kafkalog_broker.protocol.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.security.acl import Acl, Pattern
from kafkalog_broker.testing_support.client_requests import ask, exchange, frame_of
from kafkalog_broker.testing_support.control_client import Channel, Faults, RemoteClock
from kafkalog_broker.testing_support.kept_port import kept_port
from kafkalog_spark import errors

__all__ = ["BrokerDied", "RunningBroker", "allow", "ask", "deny", "exchange", "frame_of", "running_broker"]

if TYPE_CHECKING:
    from kafkalog_broker.testing_support.security import SecurityForTests

START_SECONDS = 60  # enough for the recovery of a large log
STOP_SECONDS = 60
_SERVING_LINE = re.compile(r"serves (?P<addresses>\S+:\d+(?: and \S+:\d+)*), log\.dirs ")

_TIERED_PROPERTIES = {
    "remote.log.storage.system.enable": True, "remote.log.manager.task.interval.ms": 100,
    "log.retention.check.interval.ms": 100,
}  # fmt: skip
"""Properties with which remote storage copies and deletes often enough for a test."""

Topics = Mapping[str, int | Mapping[str, Any]]
"""Number of partitions of each topic, or its configuration with the number as `partitions`."""


class BrokerDied(RuntimeError):
    """The broker ended instead of serving. The message contains the end of its log."""


class RunningBroker:
    """A broker process.

    Args:
        log_dir: Log directory, which is not deleted. If `properties` has `log.dirs`, it only determines where the
            broker's log file is.
        properties: Properties of the broker.
        security: Security of the listener; without it, any client can connect.
        control: True to use `faults` and `clock`.
        metrics: True to serve metrics.
        arguments: Further arguments of kafkalog-broker, also for later starts.
        command_prefix: Command that runs the broker in its own process, such as `strace -D`.

    Attributes:
        metrics_url: URL of the metrics, with `metrics`.
        schema_registry_url: URL of Karapace, with `schema_registry` of `running_broker`.
        faults: Faults that can be injected, with `control`.
        clock: The broker's clock, which can be advanced, with `control`.
        ports: Ports of the listeners by name.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        properties: Mapping[str, object] | None = None,
        security: SecurityForTests | None = None,
        *,
        control: bool = False,
        metrics: bool = False,
        arguments: Sequence[str] = (),
        command_prefix: Sequence[str] = (),
    ) -> None:
        self.security = security
        self._control = control
        self._metrics = metrics
        self.metrics_url = ""
        self.schema_registry_url = ""
        self._channel = Channel()
        self.faults = Faults(self._channel)
        self.clock = RemoteClock(self._channel)
        self.log_dir = Path(log_dir)
        self.log_file = self.log_dir.with_name(self.log_dir.name + ".broker.log")
        self.properties = dict(properties or {})
        self.arguments = list(arguments)
        self._command_prefix = list(command_prefix)
        self.host = "127.0.0.1"
        self.port = 0
        self.ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Address for clients, as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process ID, or None if the broker is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def log(self) -> str:
        """Return the broker's log since its first start."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self, properties: Mapping[str, object] | None = None) -> str:
        """Start the broker and wait until it serves. A restart uses the port of the first start.

        Args:
            properties: Further properties, also for later starts.

        Returns:
            The address for clients (`bootstrap`).

        Raises:
            BrokerDied: If the broker ends or does not serve in time.
        """
        if self.pid is not None:
            raise RuntimeError(f"already running as process {self.pid}")
        self.properties.update(properties or {})
        if not self.port and "listeners" not in self.properties:
            self.port = kept_port(self)
        settings = self._settings()
        control = self._channel.open() if self._control else None
        inherited = [] if control is None else [control.fileno()]
        self.log_dir.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            # stdin is a pipe that closes when this process ends for any reason; the broker then stops too.
            self._process = subprocess.Popen(
                self._command(settings, inherited),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": _python_path()},
                start_new_session=True,  # Ctrl-C stops only the tests, which then stop the broker
                pass_fds=inherited,
            )
        if control is not None:
            control.close()
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout, START_SECONDS)
        serving = _SERVING_LINE.search(line)
        if serving is None:
            code = self._process.poll()
            self.kill()
            state = "does not serve" if code is None else f"ended with {code}"
            raise BrokerDied(f"the broker {state}: {self.log()[-3000:] or line}")
        addresses = [address.rpartition(":") for address in serving["addresses"].split(" and ")]
        self.host, self.port = addresses[0][0].strip("[]"), int(addresses[0][2])
        names = [text.partition("://")[0].upper() for text in str(settings["listeners"]).split(",")]
        self.ports = {name: int(port) for name, (_, _, port) in zip(names, addresses, strict=False)}
        self.metrics_url = line.rpartition("metrics at ")[2].strip() if self._metrics else ""
        if self._control:
            self.clock.restore()
        return self.bootstrap

    def _settings(self) -> dict[str, object]:
        """Return all properties of the broker: those of its address and security, then the given ones."""
        security = self.security
        protocol = "PLAINTEXT" if security is None else security.protocol
        settings: dict[str, object] = {
            "listeners": f"{protocol}://127.0.0.1:{self.port}",
            "log.dirs": str(self.log_dir),
        }
        return settings | ({} if security is None else security.properties()) | self.properties

    def _command(self, settings: Mapping[str, object], inherited: Sequence[int]) -> list[str]:
        """Return the command line. `inherited` has the file descriptor of the control channel, if there is one."""
        # -P: modules in the current directory are not imported.
        command = [*self._command_prefix, sys.executable, "-P", "-m", "kafkalog_broker", "--stop-at-eof"]
        command += self.arguments
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--override", f"{name}={text}"]
        for user in [] if self.security is None else self.security.scram_users():
            command += ["--add-scram", user]
        command += [f"--control-fd={number}" for number in inherited]
        command += ["--metrics=127.0.0.1:0"] if self._metrics else []
        return command

    def stop(self) -> None:
        """Stop the broker cleanly (SIGTERM). Raises RuntimeError if it takes too long or ends with an error."""
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
        """Kill the broker (SIGKILL), as in a crash of the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close_pipes()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        """Create a topic by the CreateTopics API. Raises RuntimeError with the broker's message if it refuses."""
        from kafkalog_broker.protocol.client_messages import create_topic_request

        response = self.ask(create_topic_request(name, partitions, configs or {}))
        for result in response.topics:
            if result.error_code:
                raise RuntimeError(f"topic {name}: {result.error_code.name}: {result.error_message}")

    def create_acls(self, *acls: Iterable[Acl]) -> None:
        """Create ACLs made by `allow` and `deny`, by the CreateAcls API. Raises RuntimeError as `create_topic`."""
        from kafkalog_broker.protocol.client_messages import create_acls_request

        creations = [(*acl.pattern, *acl[1:]) for group in acls for acl in group]
        for result in self.ask(create_acls_request(creations)).results:
            if result.error_code:
                raise RuntimeError(f"an ACL was refused: {result.error_code.name}: {result.error_message}")

    def ask(self, request: Any) -> Any:
        """Send a request of `protocol/api_messages.py` over a new connection and return the response. Raises
        OSError."""
        with self.connect() as connection:
            return ask(connection, request)

    def connect(self) -> socket.socket:
        """Return a connection for `ask`; with security, it is authenticated as a super user. Raises OSError."""
        from kafkalog_broker.protocol.client_messages import plain_login_requests

        connection = socket.create_connection((self.host, self.port), 30)
        if self.security is None:
            return connection
        from kafkalog_broker.testing_support.security import ADMIN

        context = self.security.ssl_context(ADMIN)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=self.host)
        for request in plain_login_requests(ADMIN, self.security.password(ADMIN)) if self.security.has_sasl else ():
            response = ask(connection, request)
            if response.error_code:
                raise ConnectionError(f"not authenticated: {response.error_code.name}")
        return connection

    def client(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, Any]:
        """Return the security settings of a client of confluent-kafka, to be used with `bootstrap.servers`.

        Args:
            user: Name of the user; the first one by default.
            mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        """
        return {} if self.security is None else self.security.client(user, mechanism)

    def token(self, user: str | None = None, seconds: float = 3600.0, **claims: Any) -> str:
        """Return a token of OAUTHBEARER.

        Args:
            user: Name of the user; the first one by default.
            seconds: Time until it expires.
            claims: Claims that replace the usual ones; None omits one.

        Raises:
            ValueError: If the broker has no SASL.
        """
        if self.security is None or not self.security.has_sasl:
            raise ValueError("tokens need security: SASL_PLAINTEXT or SASL_SSL")
        return self.security.token(user, seconds, **claims)

    def ssl_context(self, user: str | None = None) -> ssl.SSLContext | None:
        """Return the TLS context for clients that accept one (kafka-python, aiokafka); None without TLS."""
        return None if self.security is None else self.security.ssl_context(user)

    def _close_pipes(self) -> None:
        self._channel.close()
        for pipe in (self._process.stdin, self._process.stdout) if self._process is not None else ():
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None

    def __enter__(self) -> Self:
        if self.pid is None:
            self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill() if error else self.stop()


@contextlib.contextmanager
def running_broker(
    properties: Mapping[str, object] | None = None,
    *,
    topics: Topics | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    security: str = "PLAINTEXT",
    users: Mapping[str, str] | None = None,
    acls: Iterable[Iterable[Acl]] | None = None,
    schema_registry: bool = False,
    tiered: bool | str | os.PathLike[str] = False,
) -> Iterator[RunningBroker]:
    """Run a broker until the context ends.

    Args:
        properties: Properties of the broker.
        topics: Topics to create: a number of partitions by name, or {"partitions": 3, "retention.ms": 1000}.
        log_dir: Log directory; by default a temporary directory, which is removed afterwards.
        security: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        users: Passwords by user name. `broker.client("alice")` returns the settings of a client.
        acls: ACLs made by `allow` and `deny`. None allows everyone everything; an empty list denies everyone.
        schema_registry: True to run Karapace too, at `broker.schema_registry_url` (docs/testing.md).
        tiered: True or a directory, which is created, to allow remote storage for topics. With True, `properties`
            (`rsm.config.*`) determine the storage; by default it is a directory next to the log directory.
    """
    directory = Path(log_dir) if log_dir is not None else Path(tempfile.mkdtemp(prefix="kafkalog-broker-")) / "data"
    broker_security = None
    if security != "PLAINTEXT":
        from kafkalog_broker.testing_support.security import SecurityForTests  # with cryptography

        broker_security = SecurityForTests(security, users)
    elif users:
        raise ValueError("users need security: SSL, SASL_PLAINTEXT or SASL_SSL")
    if schema_registry and security != "PLAINTEXT":
        raise ValueError("schema_registry needs a broker without security")
    if acls is not None:
        if not users:
            raise ValueError("acls need users, and users need security: SSL, SASL_PLAINTEXT or SASL_SSL")
        from kafkalog_broker.config.authorizer_settings import AUTHORIZER_CLASS, STANDARD_AUTHORIZER, SUPER_USERS
        from kafkalog_broker.testing_support.security import ADMIN

        properties = {AUTHORIZER_CLASS: STANDARD_AUTHORIZER, SUPER_USERS: f"User:{ADMIN}", **(properties or {})}
    if tiered:
        folder = {}
        if tiered is not True:
            Path(tiered).mkdir(parents=True, exist_ok=True)
            folder = {"rsm.config.storage.root": os.fspath(tiered)}
        properties = {**_TIERED_PROPERTIES, **folder, **(properties or {})}
    broker = RunningBroker(directory, properties, broker_security, control=True)
    try:
        with broker:
            for name, definition in (topics or {}).items():
                configs = {"partitions": definition} if isinstance(definition, int) else dict(definition)
                broker.create_topic(name, configs.pop("partitions", 1), configs)
            if acls is not None:
                broker.create_acls(*acls)
            if schema_registry:
                from kafkalog_broker.testing_support.schema_registry import running_registry

                log_file = broker.log_file.with_suffix(".karapace.log")
                with running_registry(broker.bootstrap, log_file) as broker.schema_registry_url:
                    yield broker
            else:
                yield broker
    finally:
        if log_dir is None:
            shutil.rmtree(directory.parent, ignore_errors=True)


def allow(
    user: str, *operations: str, topic: str | None = None, group: str | None = None,
    transactional_id: str | None = None, cluster: bool = False, host: str = WILDCARD,
) -> list[Acl]:  # fmt: skip
    """Return ACLs for `running_broker(acls=[...])` that allow operations on the named resources.

    Args:
        user: User name, or a principal such as `User:*`.
        operations: READ, WRITE, ALL and so on.
        topic, group, transactional_id: Names of resources; one that ends with `*` is a prefix.
        cluster: True for the cluster.
        host: Address of the client.

    Raises:
        ValueError: If an operation is unknown, or no resource is named.
    """
    unknown = [name for name in operations if name.upper() not in Operation.__members__]
    if unknown or not operations:
        raise ValueError(f"operations must be READ, WRITE, ALL and so on, not {', '.join(unknown) or 'empty'}")
    patterns = []
    for resource, name in (
        (ResourceType.TOPIC, topic), (ResourceType.GROUP, group), (ResourceType.TRANSACTIONAL_ID, transactional_id),
        (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
    ):  # fmt: skip
        if name is not None and name != WILDCARD and name.endswith(WILDCARD):
            patterns.append(Pattern(resource, PatternType.PREFIXED, name.removesuffix(WILDCARD)))
        elif name is not None:
            patterns.append(Pattern(resource, PatternType.LITERAL, name))
    if not patterns:
        raise ValueError("one of topic, group, transactional_id and cluster=True is required")
    principal = user if ":" in user else f"User:{user}"
    return [
        Acl(pattern, principal, host, Operation[name.upper()], Permission.ALLOW)
        for pattern in patterns
        for name in operations
    ]


def deny(user: str, *operations: str, **named: Any) -> list[Acl]:
    """Return ACLs that deny operations; they take precedence over permissions. Arguments are as for `allow`."""
    return [acl._replace(permission=Permission.DENY) for acl in allow(user, *operations, **named)]


def _python_path() -> str:
    """Return PYTHONPATH with the directories of both packages, which a source tree does not install."""
    roots = (Path(str(module.__file__)).resolve().parent.parent for module in (broker_errors, errors))
    return os.pathsep.join([*dict.fromkeys(map(str, roots)), *filter(None, [os.environ.get("PYTHONPATH")])])


def _first_line(stream: IO[bytes], seconds: float) -> str:
    """Return the first line, or the text before the end; "" if neither arrives in time."""
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(seconds)
    return lines[0].decode(errors="replace") if lines else ""
