"""The ``pgnotify_pubsub_driver``: subscribers poll the changelog, and PostgreSQL's NOTIFY wakes them at each commit.

The options (``pubsub_pgnotify.options``) can be read without psycopg, so nothing is imported here.
"""
