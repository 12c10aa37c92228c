"""Objects that are kept in another form, as a sequence of records, which are made when they are read."""

from collections.abc import Sequence
from typing import overload

from pubsub_lib.core.model import Record


class MadeRecords(Sequence[Record]):
    """A subclass defines ``__len__`` and ``__iter__``. All else makes every record: it is for tests and small topics.

    It equals each sequence with the same records, so it has no hash.
    """

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
