"""The audit: what became of every message and object, proved from journals (docs/audit.md has the definitions).

The only package that imports pyspark (extra ``audit``). It imports no publisher and no replica: a checker must not
share the bug that it looks for. Its rooms, each of which imports only what stands to its right:
stream → report → rules, ingest → spark.
"""
