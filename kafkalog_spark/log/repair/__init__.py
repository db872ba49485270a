"""A log directory made of what is good in a damaged one."""
