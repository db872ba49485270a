"""Client quotas: who may do how much, and how long who did more has to wait."""
