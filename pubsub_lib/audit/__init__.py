"""The audit: a verdict on every message and object, derived from journals (docs/audit.md).

The only package that imports pyspark (extra ``audit``). It imports no publisher and no replica, because a checker must
not share the bug that it looks for. Its subpackages, each of which imports only those to its right:
stream → report → rules, ingest → spark. ``show`` needs neither Spark nor the packages of the extra ``audit``.
"""
