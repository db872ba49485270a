"""Transactions: the transaction coordinator, transaction markers, and open transactions after an unclean start."""
