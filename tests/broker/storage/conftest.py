"""Fixture of an open log that several test modules use."""

from __future__ import annotations

import pytest

from tests.broker.storage.helpers.stored_logs import (
    new_log,
)


@pytest.fixture
def log(tmp_path):
    made = new_log(tmp_path)
    yield made
    made.discard()
