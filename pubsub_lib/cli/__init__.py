"""The command ``pubsub-db``: inspects and edits a store.

To add a command:

1. Write ``pubsub_lib/cli/commands/<name>.py`` with one class. Derive it from :class:`~pubsub_lib.cli.output.List`
   (rows), :class:`~pubsub_lib.cli.output.Show` (one item) or :class:`~pubsub_lib.cli.output.Act` (prints by itself,
   or nothing). ``--help`` shows its docstring and ends with its ``example``; ``add_arguments`` adds its options;
   ``columns`` (or ``column_names``, if options change them) names the columns of its result, so that an unknown one is
   refused before anything is done; ``take_action`` runs the command and returns the result's cells.
   Commands do not import each other: code that two of them need belongs in a module of ``pubsub_lib/cli``.
2. Add a line to ``COMMANDS`` in :mod:`pubsub_lib.cli.commands`. It is a table and not a group of entry points, so
   that only the command that is run is imported, and none of them for the list of commands.
3. Open the store by ``reading(self)`` or ``writing(self)`` of :mod:`pubsub_lib.cli.context`, in a ``with``. The first
   accepts a standby and never writes; the second hands each commit to the publisher that the INI file names.
   Neither creates a database for a mistyped URL.
4. A negative result (a missing key, a difference) is a :class:`~pubsub_lib.errors.ConditionFailed` or
   ``self.exit_code = exit_codes.NEGATIVE``; every other error keeps its type of :mod:`pubsub_lib.errors`. Do not
   catch an error only to print it: :mod:`pubsub_lib.cli.app` turns each error into one sentence and an exit code.
5. Return values of the store as :class:`~pubsub_lib.cli.output.Json`, so that every format shows them correctly.
6. Test it in ``tests/unit/cli/commands/test_<name>.py`` with the fixtures of ``tests/unit/cli/conftest.py``, and
   describe it in ``docs/cli.md`` (a test compares the two).
"""
