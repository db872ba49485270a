"""Server-side assignors of consumer groups and share groups. The one of streams groups is streams/task_assignor.py."""
