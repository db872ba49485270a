"""The command line: property files, overrides and errors."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import subprocess
import sys

import pytest

from kafkalog_broker import broker_process
from kafkalog_broker.broker_process import ProcessOptions, progress_logger
from kafkalog_broker.cli import configuration, log_ignored_properties, main, parser
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.server import Server
from kafkalog_broker.storage.clean_shutdown import write_clean_shutdown
from kafkalog_broker.storage.recovery.load_progress import LoadProgress
from kafkalog_spark.exit_codes import FAILED, OK, WRONG_USAGE


def config(*argv):
    return configuration(parser().parse_args(argv))


def test_log_directory_is_the_only_required_option(tmp_path):
    made = config("--log-dir", str(tmp_path))
    assert made.log_dirs == (str(tmp_path),)
    assert made.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert made.auto_create_topics_enable
    assert made.group_initial_rebalance_delay_ms == 0


@pytest.mark.parametrize(
    ("argv", "host", "port"),
    [
        (["--port", "9093"], "127.0.0.1", 9093),
        (["--host", "::1"], "::1", 9092),
        (["--host", "localhost", "--port", "0"], "localhost", 0),
    ],
)
def test_host_and_port_set_the_listener(argv, host, port, tmp_path):
    assert config("--log-dir", str(tmp_path), *argv).listeners == (Listener("PLAINTEXT", host, port),)


def test_property_file_gets_the_defaults_of_kafka(tmp_path):
    file = tmp_path / "server.properties"
    file.write_bytes(b"# Kafka's\nnode.id = 3\nlog.dirs=/data \\\n  ,/more\nlisteners=PLAINTEXT\\://h:9093\n")
    made = config(str(file))
    assert (made.node_id, made.log_dirs) == (3, ("/data", "/more"))
    assert made.listeners == (Listener("PLAINTEXT", "h", 9093),)
    assert made.group_initial_rebalance_delay_ms == 3000


def test_overrides_win_over_the_file_and_may_hold_equals_signs(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.dirs=/data\n")
    made = config(str(file), "--override", "num.partitions=4", "--override", "broker.rack=a=b", "--log-dir", "/else")
    assert (made.num_partitions, made.broker_rack, made.log_dirs) == (4, "a=b", ("/else",))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "give --log-dir DIR or a configuration file"),
        (["--log-dir", "/x", "--override", "num.partition=1"], "did you mean num.partitions?"),
        (["--log-dir", "/x", "--override", "num.partitions=no"], "Invalid value no for configuration num.partitions"),
        (["--log-dir", "/x", "--override", "num.partitions"], "expected NAME=VALUE"),
        (["--log-dir", "/x", "--port", "1", "--override", "listeners=PLAINTEXT://:1"], "the property listeners"),
        (["/x.properties", "--host", "::"], "cannot be combined with a configuration file"),
        (["/no/such/server.properties"], "cannot be read: No such file or directory"),
    ],
)
def test_invalid_option_exits_with_one_line_that_names_it(argv, said, capsys):
    assert main(argv) == WRONG_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("kafkalog-broker: ")
    assert err.count("\n") == 1


def test_property_file_unreadable_by_java_is_refused_with_the_line(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("a=1\nb=\\u12\n")
    with pytest.raises(ConfigError, match="line 2"):
        config(str(file))


def test_unknown_properties_of_the_file_are_named_with_the_nearest_known_name(tmp_path, caplog):
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/data\nnum.partition=4\nmax.decompressed.message.bytes=1000\nprocess.roles=broker\n")
    with caplog.at_level("INFO"):
        log_ignored_properties(config(str(file)))
    assert caplog.messages == [
        "the unknown property max.decompressed.message.bytes is ignored",
        "the unknown property num.partition is ignored; did you mean num.partitions?",
        "without effect in this broker: process.roles",
    ]


def test_recovery_logs_its_progress_once_a_second(caplog):
    now = [100.0]
    tell = progress_logger(lambda: now[0])
    with caplog.at_level("INFO"):
        for step in range(1, 41):
            now[0] += 0.125
            tell(LoadProgress(step // 20, 2, step * 25_000_000, 1_000_000_000))
    assert caplog.messages == [
        f"loading logs: {percent} %, {percent * 10} of 1000 MB, {percent // 50} of 2 logs"
        for percent in (20, 40, 60, 80, 100)
    ]


@pytest.mark.parametrize(
    ("progress", "percent"),
    [
        (LoadProgress(0, 3, 0, 900), 0),
        (LoadProgress(1, 3, 899, 900), 99),
        (LoadProgress(3, 3, 950, 900), 100),
        (LoadProgress(1, 4, 0, 0), 25),
        (LoadProgress(0, 0, 0, 0), 100),
    ],
)
def test_recovery_progress_is_shown_in_percent(progress, percent):
    assert progress.percent == percent


def test_command_starts_without_packages_of_tests():
    """An import of hypothesis would be a large part of the start in environments for tests."""
    code = (
        "import contextlib, sys; from kafkalog_broker.__main__ import main; sys.argv[1:] = ['--version']\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "import kafkalog_broker.server; from kafkalog_broker import api; api.load_all()\n"
        "assert 'hypothesis' not in sys.modules\n"
        "import hypothesis"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def serve_until_directories_fail(monkeypatch, directories, failing):
    """Return the exit code of a broker whose log directories fail; if one is left, the broker is stopped."""

    start = Server.start

    async def start_and_fail(*arguments):
        started = await start(*arguments)
        dirs = started.broker.logs.dirs
        for log_dir in dirs.all:
            if log_dir.path in failing:
                log_dir.fail(OSError(errno.EIO, "no such disk"))
        if dirs.online:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        return started

    arguments = parser().parse_args(
        ["--log-dir", ",".join(map(str, directories)), "--override", "listeners=PLAINTEXT://:0"]
    )
    config = configuration(arguments)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(Server, "start", start_and_fail)
            return asyncio.run(asyncio.wait_for(broker_process.serve(config, ProcessOptions()), 120))
    finally:
        gc.unfreeze()


def test_broker_without_a_usable_log_directory_exits_with_status_1(tmp_path, monkeypatch, caplog, capsys):
    """Kafka halts, so that whatever supervises it may start it again."""
    directories = [tmp_path / "a", tmp_path / "b"]
    with caplog.at_level("INFO"):
        assert serve_until_directories_fail(monkeypatch, directories, directories) == FAILED
    assert "all log directories have failed" in capsys.readouterr().err
    assert "cleanly" not in caplog.text
    assert not list(tmp_path.glob("*/.kafka_cleanshutdown"))


def test_broker_with_a_failed_log_directory_does_not_report_a_clean_stop(tmp_path, monkeypatch, caplog):
    directories = [tmp_path / "a", tmp_path / "b"]
    with caplog.at_level("INFO"):
        assert serve_until_directories_fail(monkeypatch, directories, directories[:1]) == OK
    assert "cleanly" not in caplog.text
    assert f"the next start has to recover {directories[0]}" in caplog.messages[-1]
    assert list(tmp_path.glob("*/.kafka_cleanshutdown")) == [directories[1] / ".kafka_cleanshutdown"]
    with caplog.at_level("INFO"):
        assert serve_until_directories_fail(monkeypatch, directories, []) == OK
    assert caplog.messages[-1].startswith("stopped cleanly in ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("step", "is_clean"), [("_recover_one", False), ("_create_missing", True)], ids=["recovery", "after-loading"]
)
def test_signal_during_the_start_stops_the_broker_cleanly(step, is_clean, number, tmp_path):
    """A start recovers the logs for minutes. The broker must end without serving, and without a traceback."""
    code = (
        "import os, sys\n"
        "from kafkalog_broker.cli import main\n"
        "from kafkalog_broker.storage.log_manager import LogManager\n"
        f"step = LogManager.{step}\n"
        "def signal_first(logs, *arguments):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    assert logs.stops_loading.wait(60)\n"
        "    step(logs, *arguments)\n"
        f"LogManager.{step} = signal_first\n"
        "sys.exit(main())"
    )
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").touch()
    if is_clean:
        write_clean_shutdown(tmp_path, -1)
    ran = subprocess.run(
        [sys.executable, "-c", code, "--log-dir", str(tmp_path), "--port", "0"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (OK, "")
    assert f"{signal.Signals(number).name}: stopping" in ran.stderr
    assert "stopped before the start was complete" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert (tmp_path / ".kafka_cleanshutdown").exists() is is_clean


def test_command_without_the_extra_names_the_missing_extra():
    """kafkalog[spark] installs the command too, and not the packages that only the broker needs."""
    code = "import sys; sys.modules['xxhash'] = None; from kafkalog_broker.__main__ import main; sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (WRONG_USAGE, "")
    assert ran.stderr.startswith(
        "kafkalog-broker: the broker needs the package xxhash; pip install 'cryptography>=42' "
    )
    assert " 'xxhash>=3.0'" in ran.stderr


def test_metrics_without_the_extra_are_refused_in_one_sentence(tmp_path):
    code = "import sys; sys.modules['prometheus_client'] = None; from kafkalog_broker.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", code, "--log-dir", str(tmp_path), "--port", "0", "--metrics", ":0"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == WRONG_USAGE
    assert ran.stderr.startswith("kafkalog-broker: --metrics needs the package prometheus_client; pip install ")
    assert ran.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_command_and_tests_use_the_same_event_loop():
    made = new_event_loop()
    made.close()
    assert "uvloop" in type(made).__module__
    assert vars(broker_process)["new_event_loop"] is new_event_loop


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9404", ("127.0.0.1", 9404)), (":9404", ("127.0.0.1", 9404)), ("[::1]:0", ("::1", 0))],
)
def test_metrics_address_is_parsed(text, address):
    assert parser().parse_args(["--metrics", text]).metrics == address


@pytest.mark.parametrize("text", ["9404x", "localhost", "127.0.0.1:65536"])
def test_invalid_metrics_address_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["--metrics", text])
    assert "is not HOST:PORT" in capsys.readouterr().err
