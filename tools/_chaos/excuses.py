"""Which ends of processes, and which results of the audit, the planned faults explain. No I/O."""

from collections.abc import Sequence
from typing import Final

from _routes.audit import Audit

from _chaos.crew import Ended
from _chaos.plan import Plan

MORE: Final = 3
"""Maximum number of the audit's faults that one sentence names."""


def unexplained_ends(ended: Sequence[Ended], plan: Plan) -> list[Ended]:
    """The ends of processes that no planned fault explains."""
    return list(ended)


def unexplained_audit(audit: Audit, plan: Plan) -> list[str]:
    """A sentence for each result of the audit that no planned fault explains."""
    if audit.exit_code == 0:
        return []
    found = [f"exit code {audit.exit_code}: {audit.sentence}"]
    found += [" ".join(f"{name}={value}" for name, value in fault.items()) for fault in audit.faults[:MORE]]
    return found + list(audit.problems)
