"""``zmq_pubsub_multiproc_driver``: the worker processes of one host hand their changes to its one publisher service.

Importing this package imports no ZeroMQ, so that the options can be read without it; the class is in :mod:`.driver`.
"""
