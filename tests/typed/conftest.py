"""Fixtures of typed values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.typed.protos import compiled


@pytest.fixture(scope="package")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The descriptor set of tests.typed.protos."""
    return compiled(tmp_path_factory.mktemp("proto"))
