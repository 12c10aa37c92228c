"""A whole system in virtual time: the production core with sockets, threads and the SQL engine replaced.

``docs/simulator.md`` says what runs for real and what is modelled; ``tools/simulate`` runs it.
"""
