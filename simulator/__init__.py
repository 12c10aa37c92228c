"""A whole system in virtual time: the production core with sockets, threads and the SQL engine replaced.

``docs/contributing/simulator.md`` describes the real and the modelled parts; ``tools/simulate`` runs it.
"""
