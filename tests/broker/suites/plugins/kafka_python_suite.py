"""kafka-python: its sources lack test/__init__.py and test/service.py, and Python has a `test` of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class ExternalService:
    """A broker that runs already: nothing to start, nothing to stop."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def dump_logs(self) -> None:
        pass

    stop = close


class SpawnedService:
    """A Kafka that the suite would start itself; `_needs_its_own` skips its tests first."""


def _needs_its_own(original: Callable[..., Any]) -> Callable[..., Any]:
    def instance(*arguments: Any, external: bool = False, **named: Any) -> Any:
        if not external:
            pytest.skip(f"starts a Kafka of its own: {named}")
        return original(*arguments, external=True, **named)

    return instance


def _install() -> None:
    root = Path.cwd()
    package = ModuleType("test")
    package.__path__ = [str(root / "test")]
    service = ModuleType("test.service")
    service.__dict__.update(ExternalService=ExternalService, SpawnedService=SpawnedService)
    sys.modules["test"], sys.modules["test.service"] = package, service
    fixtures = importlib.import_module("test.integration.fixtures")
    fixtures.Fixture.kafka_root = str(root)  # where a Kafka to be started would be; only looked for
    fixtures.KafkaFixture.instance = staticmethod(_needs_its_own(fixtures.KafkaFixture.instance))


_install()  # at import: the suite's conftest is imported before pytest_configure is called
