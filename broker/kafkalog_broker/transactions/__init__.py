"""Transactions: states and decisions on plain data (KIP-98, KIP-360, KIP-890), and the records of __transaction_state.

Nothing here knows a file, a socket or a clock of its own: `transaction_coordinator` is given all three.
"""
