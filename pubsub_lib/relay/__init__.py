"""A running relay: the threads, sockets and waits around :class:`pubsub_lib.core.relaying.Relay`."""
