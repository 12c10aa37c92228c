"""``tools/chaos``: processes of the library under random faults, a comparison at the end, and an audit.

``plan`` and ``draw`` decide before the run which faults strike; ``run`` executes a plan with the processes of ``crew``.
"""
