"""The service's limit of open files: each connection needs one, and the usual soft limit is only 1,024."""

import resource

from pubsub_lib.logs import logger

_log = logger(__name__)


def raise_limit() -> int:
    """Raise this process's soft limit of open files to the hard one, which needs no rights; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # a sandbox may forbid it
        _log.warning("the limit of open files stays at %d, and %d is not allowed: %s", soft, hard, error)
        return soft
    _log.info("raised the limit of open files from %d to %d", soft, hard)
    return hard
