"""Requests to a broker in this process through its dispatcher, like those of a connection."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.net.dispatch import response_of
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.testing_support.client_requests import frame_of
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.api.helpers.transaction_requests import INIT, TIMEOUT_MS, TOPIC
from tests.broker.protocol.helpers.kio_messages import read_response


class Client:
    """Sends requests and returns responses as `plain` values; also usable as the `Asked` of `transaction_requests`."""

    def __init__(self, running: BrokerInProcess) -> None:
        self.running = running

    def __call__(self, label: str, key: int, version: int, /, **values: Any) -> dict[str, Any]:
        return self.send(key, version, **values)

    def send(self, key: int, version: int, /, **fields: Any) -> dict[str, Any]:
        return self.running.run(self._sent(key, version, fields))  # type: ignore[no-any-return, arg-type]

    async def _sent(self, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        broker = self.running.broker
        topic = broker.topics.get(TOPIC)
        ids = {} if topic is None else {TOPIC: topic.id}
        frame = frame_of(request_entity(key, version, fields, ids))
        pieces = await response_of(self.running.server.network.shared.dispatch(frame, ConnectionInfo()))
        self.responded(key)
        assert pieces is not None
        return plain(read_response(key, version, b"".join(map(bytes, pieces))[4:]))  # type: ignore[no-any-return, arg-type]

    def responded(self, key: int) -> None:
        """Called when a response is encoded, before any other task runs."""

    def settle(self, transactional_id: str) -> None:
        assert not self.running.broker.transactions.is_prepared(transactional_id)

    def init(self, transactional_id: str = "t") -> dict[str, Any]:
        answer = self.send(
            INIT, 5, transactional_id=transactional_id, transaction_timeout=TIMEOUT_MS, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        assert answer["error_code"] == "none"
        return {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}
