"""What the demo and the full real set share: routes are loaded, replayed by writers, followed by replicas, compared.

A *run* is one process that plans and compares (:mod:`.run`) and one child process per writer and replica, which it
speaks with by lines of JSON (:mod:`.messages`): commands on the child's stdin, reports on its stdout.
"""
