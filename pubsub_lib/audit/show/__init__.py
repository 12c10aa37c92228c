"""``pubsub-audit show``: prints the records of journals for people. It needs neither Spark nor Java.

Append files need no further package, Parquet files only pyarrow, which is imported for the first one.
"""
