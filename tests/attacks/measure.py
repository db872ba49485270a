"""Measurement of attacks: how long other clients wait, how much memory the broker takes, and whether it survives.

A broker is started once for all attacks, and again if an attack ended it, left it busy, or needs another tier. While an
attack runs, another process sends ApiVersions every few milliseconds; "others wait" is the longest of its waits, up to
one second after the end of the attack. Memory is RssAnon: pages of files, which the kernel may drop, are not counted.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.broker_sides import PROPERTIES, sides
from benchmarks.report import Report
from kafkalog_broker.testing import RunningBroker
from tests.attacks.catalog import Attack
from tests.attacks.delivery import LIMIT, Target
from tests.attacks.probe import Memory, Probe, lives

OTHERS_WAIT_MS, GROWTH_MB = 100, 64
"""The bars: what others may wait, what memory may grow by."""
AFTER = 1.0
"""Seconds after an attack that still count for others: a broker may go on with it when the client has left."""
GIVEN_BACK = 5.0
"""Seconds after an attack when what is still held is read."""
ADDRESS_SPACE = 8 << 30
"""Bytes that our broker may map: a container of ordinary size. Otherwise 34 GB asked for by one frame go unnoticed on a
large machine. A JVM maps more than it uses, and has its own limit."""


class Outcome(NamedTuple):
    """Of one attack on one broker. ms, s (None: more than LIMIT), and MB of 10^6 bytes."""

    others_ms: float
    others_p99_ms: float
    seconds: float | None
    growth_mb: float
    kept_mb: float
    lived: bool

    def misses(self, attack: Attack) -> list[str]:
        """Return a description of the limits that the outcome exceeds."""
        found = [] if self.lived else ["the process ended"]
        if self.others_ms > OTHERS_WAIT_MS:
            found.append(f"others waited {self.others_ms:.0f} ms of {OTHERS_WAIT_MS}")
        if self.growth_mb > GROWTH_MB:
            found.append(f"+{self.growth_mb:.0f} MB of {GROWTH_MB}")
        if self.kept_mb > GROWTH_MB / 2:
            found.append(f"{self.kept_mb:.0f} MB not given back")
        return found

    def cells(self) -> str:
        """For the table: others wait, memory at most, memory afterwards, how long the attack took."""
        if not self.lived:
            return "**process ends** | | |"
        seconds = f"over {LIMIT:.0f} s" if self.seconds is None else f"{self.seconds:.2f} s"
        return f"{self.others_ms:.0f} ms | {self.growth_mb:+.0f} MB, {self.kept_mb:+.0f} MB after | {seconds} |"


MakeSide = Callable[[Mapping[str, object] | None], Any]


class Besieged:
    """One broker with its probe: started when first needed, and again after it has ended, or with another tier.

    `side(tier)` makes the broker, not started, with the tier's settings.
    """

    def __init__(self, name: str, side: MakeSide) -> None:
        self.name, self._make = name, side
        self._tier: Mapping[str, object] | None = None
        self._side = side(None)
        self._probe: Probe | None = None
        self._count = 0

    def suffer(self, attack: Attack) -> Outcome:
        """Run the attack once, on a topic of its own."""
        if attack.tier != self._tier:
            self._clear()
            self._tier, self._side = attack.tier, self._make(attack.tier)
        probe = self._ready()
        target, topic = self._target(), f"attack-{attack.name}-{self._count}"
        self._count += 1
        if attack.topic_config is not None:
            self._side.create_topic(topic, 1, attack.topic_config)
        if attack.prepare is not None:
            attack.prepare(target, topic)
            time.sleep(AFTER)
        pid = self._side.pid
        memory = Memory(pid)
        before = memory.now()
        memory.reset()
        probe.waits()
        begin = time.perf_counter()
        seconds: float | None = None
        try:
            attack.run(target, topic)
            seconds = time.perf_counter() - begin
        except TimeoutError:
            pass
        except ConnectionError as error:
            print(f"{self.name}: {attack.name}: {error}", flush=True)
            seconds = time.perf_counter() - begin
        time.sleep(AFTER)
        waits = probe.waits()
        lived = lives(pid)
        peak = memory.peak
        memory.close()
        time.sleep(GIVEN_BACK - AFTER)
        after = memory.now()
        if not lived or waits.lost or seconds is None:
            self._clear()  # dead, or still at it when the next attack comes
        if not lived:
            return Outcome(waits.longest, waits.p99, seconds, 0, 0, False)
        return Outcome(waits.longest, waits.p99, seconds, peak - before, after - before, True)

    def _target(self) -> Target:
        host, _, port = self._side.bootstrap.rpartition(":")
        if not isinstance(self._side, RunningBroker):
            return Target(host, int(port))
        return Target(host, int(port), urlsplit(self._side.metrics_url).port or 0, self._side.log_dir)

    def _ready(self) -> Probe:
        if self._probe is None:
            self._side.start()
            if self.name == "kafkalog":
                _limit_address_space(self._side.pid)
            host, _, port = self._side.bootstrap.rpartition(":")
            self._probe = Probe(host, int(port))
            time.sleep(AFTER)
        return self._probe

    def _clear(self) -> None:
        if self._probe is not None:
            self._probe.__exit__(None, None, None)
            self._probe = None
        self._side.kill()

    def close(self) -> None:
        """Stop the probe and kill the broker without a clean shutdown: its data is not used again."""
        self._clear()


def _ours(home: Path, tier: Mapping[str, object] | None) -> RunningBroker:
    """This broker with its metrics page, in a new directory below `home`."""
    home = Path(mkdtemp(dir=home))
    properties: dict[str, object] = {**PROPERTIES}
    if tier is not None:
        properties |= {
            "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": 200,
            "log.retention.check.interval.ms": 200, **tier,
        }  # fmt: skip
        is_plain = "remote.log.storage.manager.class.name" in tier
        (home / "tier").mkdir()
        properties["rsm.config.dir" if is_plain else "rsm.config.storage.root"] = home / "tier"
    return RunningBroker(home / "log", properties, metrics=True)


def _limit_address_space(pid: int) -> None:
    import resource

    resource.prlimit(pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


Outcomes = dict[str, dict[str, Outcome]]
"""By the names of attack and broker."""


def measure(names: Iterable[str], attacks: Sequence[Attack], repeat: int, report: Report) -> Outcomes:
    """Every attack `repeat` times on each of these brokers, in turn. Of several outcomes of one, that with the shortest
    wait of others: other work on the machine only ever adds."""
    found: Outcomes = {attack.name: {} for attack in attacks}
    with TemporaryDirectory(prefix="kafkalog-attacks-") as home:
        makers: dict[str, MakeSide] = {
            "kafkalog": partial(_ours, Path(home)),
            "kafka": lambda tier: sides(Path(home))["kafka"],
        }
        brokers = [Besieged(name, make) for name, make in makers.items() if name in names]
        try:
            for attack in attacks:
                figures: dict[str, Any] = {}
                for broker in brokers:
                    if attack.only_ours and broker.name != "kafkalog":
                        continue
                    gc.collect()
                    runs = [broker.suffer(attack) for _ in range(repeat)]
                    best = min(runs, key=lambda outcome: (not outcome.lived, outcome.others_ms))
                    found[attack.name][broker.name] = best
                    figures |= _figures(broker.name, best)
                    if broker.name == "kafkalog":
                        figures["misses"] = "; ".join(best.misses(attack)) or "nothing"
                report.add("attacks", f"{attack.title} ({attack.name})", **figures)
        finally:
            for broker in brokers:
                broker.close()
    return found


def _figures(name: str, outcome: Outcome) -> dict[str, Any]:
    return {
        f"{name}_others_ms": round(outcome.others_ms, 1),
        f"{name}_others_p99_ms": round(outcome.others_p99_ms, 1),
        f"{name}_s": None if outcome.seconds is None else round(outcome.seconds, 2),
        f"{name}_MB": round(outcome.growth_mb),
        f"{name}_MB_after": round(outcome.kept_mb),
        f"{name}_lives": outcome.lived,
    }


def table(attacks: Sequence[Attack], found: Outcomes) -> str:
    """Markdown for benchmarks/results: an attack a line, three cells a broker."""
    names = list(dict.fromkeys(name for outcomes in found.values() for name in outcomes))
    titles = {"kafkalog": "this broker", "kafka": "Apache Kafka"}
    head = "".join(f" {titles[name]}: others wait | memory, 5 s later | takes |" for name in names)
    lines = [f"| attack |{head}", "|---|" + "---|---|---|" * len(names)]
    for attack in attacks:
        cells = " ".join(found[attack.name][name].cells() if name in found[attack.name] else "| | |" for name in names)
        lines.append(f"| {attack.title} | {cells}")
    return "\n".join(lines)
