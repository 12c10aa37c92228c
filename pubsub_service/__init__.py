"""The script ``publisher-service``. It stands outside of ``pubsub_lib``, which takes a moment to import: Ctrl-C in that
moment ends the service as quietly as at any other.
"""


def main() -> int:
    """Run the service by this process' arguments; its exit code."""
    try:
        from pubsub_lib.service.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
