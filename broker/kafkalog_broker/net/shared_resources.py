"""Buffers, queues and limits that all connections of a network share."""

from __future__ import annotations

import asyncio

from kafkalog_broker.net.connection_quotas import ConnectionQuotas
from kafkalog_broker.net.dispatch import Dispatch
from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.net.memory_pool import MemoryPool
from kafkalog_broker.net.read_turns import ReadTurns
from kafkalog_broker.net.request_reader import RECEIVE_BUFFER_BYTES
from kafkalog_broker.net.unread_responses import UnreadResponses
from kafkalog_broker.runtime.fair_scheduling import fair_queue
from kafkalog_broker.runtime.log_rate import LogRate


class SharedResources:
    """Resources of all connections of a network. Create it inside the event loop that runs the connections."""

    def __init__(
        self, dispatch: Dispatch, quotas: ConnectionQuotas, queued_max_request_bytes: int, close_log: LogRate
    ) -> None:
        """
        Args:
            dispatch: Handles the requests of all connections.
            quotas: Decides about new connections.
            queued_max_request_bytes: Limit of the `MemoryPool`.
            close_log: Log of connections that the broker closes.
        """
        self.dispatch = dispatch
        self.quotas = quotas
        self.close_log = close_log
        self.loop = loop = asyncio.get_running_loop()
        self.fair_queue = fair_queue()
        self.memory = MemoryPool(queued_max_request_bytes)
        self.loop_watch = LoopWatch()
        self.read_turns = ReadTurns(loop)
        self.unread = UnreadResponses(loop)
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.send_buffers: list[memoryview] = []  # at most one, as ResponseWriter uses it
