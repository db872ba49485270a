"""Background recovery of a log with damaged index or epoch files in a cleanly closed directory."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.recovery import log_loader
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE
from kafkalog_spark.log.write.segment_recovery import recover_segment
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.storage.helpers.stored_logs import append_records


@pytest.mark.parametrize("name", [f"{0:020d}.txnindex", "leader-epoch-checkpoint"])
def test_log_with_a_damaged_index_or_epoch_file_is_recovered_in_another_thread(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with BrokerInProcess(data) as process:
        for topic in ("orders", "payments"):
            process.run(process.broker.ensure_topic(topic, 1, {}))
            append_records(process.broker.log(topic, 0), [(b"k", b"v")], process.clock.now_ms())
    (data / "orders-0" / name).write_bytes(b"damaged")
    threads = []
    may_end = threading.Event()

    def recover(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.get_ident())
        assert may_end.wait(60)
        return recover_segment(*arguments, **named)

    monkeypatch.setattr(log_loader, "recover_segment", recover)
    with BrokerInProcess(data) as process:
        logs = process.broker.logs
        for _ in range(2):
            with pytest.raises(BrokerError, match="is being recovered") as refused:
                process.broker.log("orders", 0)
            assert refused.value.code is ErrorCode.kafka_storage_error
        assert not logs.is_online("orders", 0)
        assert process.broker.log("payments", 0).log_end_offset == 1

        async def recovered() -> None:
            may_end.set()
            async with asyncio.timeout(60):
                while not logs.is_online("orders", 0):
                    await asyncio.sleep(0.01)

        process.run(recovered())
        assert process.broker.log("orders", 0).log_end_offset == 1
    assert threads
    assert threading.get_ident() not in threads
    assert (data / CLEAN_SHUTDOWN_FILE).exists()
