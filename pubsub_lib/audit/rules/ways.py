"""The ways in which a change comes into a replica (audit-verdicts.md, "Delivery")."""

from typing import Final

MESSAGE: Final = "message"
POLLING: Final = "polling"
REPAIR: Final = "repair"
NO_WAY: Final = ""
