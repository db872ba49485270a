"""Error responses: which values of the request their items repeat."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.error_response import _error_structs
from kafkalog_broker.protocol.responses import array_element_class

_OFFSET_FOR_LEADER_EPOCH = 23


def test_item_of_a_text_repeats_the_text_in_a_field_named_like_a_method_of_str() -> None:
    topic = array_element_class(response_class(_OFFSET_FOR_LEADER_EPOCH, 4), "topics")
    partition = array_element_class(topic, "partitions")
    (item,) = _error_structs(partition, ("name",), ErrorCode.not_controller, None, on_both_levels=False)
    assert (item.partition, item.error_code) == ("name", ErrorCode.not_controller)
