"""The command ``pubsub-db``: looks into a store, and changes it.

To add a command:

1. Write ``pubsub_lib/cli/commands/<name>.py`` with one class. Derive it from :class:`~pubsub_lib.cli.output.List`
   (rows), :class:`~pubsub_lib.cli.output.Show` (one thing) or :class:`~pubsub_lib.cli.output.Act` (prints by itself,
   or nothing). Its docstring's first line is what ``--help`` shows; ``get_parser`` adds its options; ``take_action``
   does it. Commands do not import each other: what two of them need stands beside them, in ``pubsub_lib/cli``.
2. Add a line to ``COMMANDS`` in :mod:`pubsub_lib.cli.commands`: that is a table and not a group of entry points,
   so only the command that is run gets imported.
3. Open the store by ``reading(self)`` or ``writing(self)`` of :mod:`pubsub_lib.cli.context`, in a ``with``. The first
   takes a standby too, and never writes; the second hands what is committed to the publisher that the INI file names.
   Neither makes a database out of a mistyped URL.
4. What is not so (a missing key, a difference) is a :class:`~pubsub_lib.errors.ConditionFailed` or
   ``self.exit_code = exit_codes.NOT_SO``; every other error keeps its type of :mod:`pubsub_lib.errors`. Nothing is
   caught only to be printed: :mod:`pubsub_lib.cli.app` makes one sentence and an exit code of it.
5. Return values of the store as :class:`~pubsub_lib.cli.output.Json`, so that every format shows them as it should.
6. Test it in ``tests/unit/cli/commands/test_<name>.py`` with the fixtures of ``tests/unit/cli/conftest.py``, and
   describe it in ``docs/cli.md`` (a test compares the two).
"""
