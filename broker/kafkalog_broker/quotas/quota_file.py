"""The file `kafkalog.client-quotas.json`, a copy of which is in each log directory:

    {"version": 0, "generation": 3,
     "quotas": [{"entity": {"user": "alice", "client-id": null}, "values": {"producer_byte_rate": 1048576.0}}]}

A name of null is the default entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.quotas.quota_alteration import QuotaOperation, alter_quotas
from kafkalog_broker.quotas.quota_entity import Quotas
from kafkalog_spark.errors import CorruptFile

FILE = "kafkalog.client-quotas.json"


def quota_file(directories: Iterable[Path]) -> StateCopies[Quotas]:
    """Return the file of client quotas, with a copy in each directory."""
    return StateCopies(FILE, directories, _encode, _decode)


def _encode(quotas: Quotas) -> dict[str, Any]:
    return {
        "quotas": [{"entity": entity.named(), "values": dict(values)} for entity, values in quotas.items() if values]
    }


def _decode(state: Mapping[str, Any]) -> Quotas:
    quotas = {}
    for entry in state["quotas"]:
        operations = [QuotaOperation(key, float(value)) for key, value in entry["values"].items()]
        try:
            entity, values = alter_quotas({}, entry["entity"].items(), operations)
        except BrokerError as error:
            raise CorruptFile(f"the JSON does not have the expected content: {error.what}") from None
        quotas[entity] = values
    return quotas
