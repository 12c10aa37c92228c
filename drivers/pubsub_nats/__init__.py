"""``nats_pubsub_driver``: envelopes over a NATS server or cluster, without JetStream.

Importing this package imports no NATS client, so that the options can be read without it; the class is in
:mod:`.driver`.
"""
