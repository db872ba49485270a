"""CreateTopics refuses the topic of the metadata log."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker, only_result, send
from tests.broker.api.helpers.admin_scenario import create, new_topic


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("validate_only", [False, True])
def test_cluster_metadata_topic_cannot_be_created(broker, validate_only):
    refused = only_result(send(broker, create(new_topic("__cluster_metadata"), validate_only=validate_only)))
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message == "Creation of internal topic __cluster_metadata is prohibited."
    assert "__cluster_metadata" not in broker.topics
