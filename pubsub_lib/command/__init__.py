"""What the three commands share: standard streams, signals, one sentence for each error, and one table of exit codes.

``pubsub-db``, ``publisher-service`` and ``pubsub-audit`` begin in :mod:`pubsub_lib.scripts`.
"""
