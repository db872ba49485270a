"""Server-side assignors of consumer groups and share groups. Those of streams groups: streams/task_assignor.py."""
