"""Base of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071)."""
