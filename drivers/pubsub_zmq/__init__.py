"""The ZeroMQ drivers: ``zmq_pubsub_driver`` between hosts, :mod:`pubsub_zmq.multiproc` between a host's processes.

Importing this package imports no ZeroMQ, so that the options can be read without it; the class is in :mod:`.driver`.
"""
