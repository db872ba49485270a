from __future__ import annotations

from typing import Any

import pytest

from kafkalog_broker.protocol import api_registry
from tests.broker.protocol.helpers.drawn_messages import REQUEST_VERSIONS


async def _never_called(request: Any, broker: Any) -> None:
    raise AssertionError("no handler runs in these tests")


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is registered, and what the test registers is forgotten."""
    monkeypatch.setattr(api_registry, "_APIS", {})
    monkeypatch.setattr(api_registry, "_ERROR_ANSWERS", {})


@pytest.fixture(scope="module")
def everything_served() -> Any:
    """Every API and version that kio can read is registered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_registry, "_APIS", {})
        patch.setattr(api_registry, "_ERROR_ANSWERS", {})
        for key, versions in REQUEST_VERSIONS.items():
            api_registry.api(key, versions[0], versions[-1])(_never_called)
        yield
