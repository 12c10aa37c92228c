"""The script ``pubsub-db``. It stands outside of ``pubsub_lib``, which takes a moment to import: Ctrl-C in that moment
ends the command as quietly as at any other.
"""


def main() -> int:
    """Run the command of this process' arguments; its exit code."""
    try:
        from pubsub_lib.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
