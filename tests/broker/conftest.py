"""A log directory that tests of hostile files copy and damage."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def broker_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root that `hostile_broker.make` has filled. Tests change a `copy_of` it."""
    from tests.broker.storage.helpers.hostile_broker import make  # a whole broker, for the few tests that need it

    root = tmp_path_factory.mktemp("made") / "broker"
    make(root)
    return root
