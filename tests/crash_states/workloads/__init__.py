"""Workloads. Importing this package registers all of them."""

from tests.crash_states.workloads import producers as producers
from tests.crash_states.workloads import transactions as transactions
