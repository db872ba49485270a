"""Workloads. Importing this package registers all of them."""

from tests.crash_states.workloads import administration as administration
from tests.crash_states.workloads import compaction as compaction
from tests.crash_states.workloads import groups as groups
from tests.crash_states.workloads import mirror as mirror
from tests.crash_states.workloads import producers as producers
from tests.crash_states.workloads import sink as sink
from tests.crash_states.workloads import tier as tier
from tests.crash_states.workloads import transactions as transactions
