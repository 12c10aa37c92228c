"""The common parts of the demo and the full real set: load routes, replay updates, follow them by replicas, compare.

A *run* is one process that plans and compares (:mod:`.run`), with one child process per writer and replica. They
exchange lines of JSON (:mod:`.messages`): commands on the child's stdin, reports on its stdout.
"""
