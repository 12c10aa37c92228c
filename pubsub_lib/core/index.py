"""Secondary indexes over the objects that a replica shows."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from pubsub_lib.arguments import check_function
from pubsub_lib.core.events import Decode, decoded
from pubsub_lib.errors import UsageError, described

Extract = Callable[[Any], Any] | str
"""Returns the index values of a decoded value: a field path (``"switch"``, ``"binding.chassis"``), or a function that
returns one hashable, or a list, set or iterator of hashables. None, and a missing field: not in the index.
"""


MAX_DESCRIBED: Final = 100
"""Maximum number of objects of one index whose error is kept as text; of all others only the key is kept."""
MAX_TEXT: Final = 300
"""Maximum number of characters of an error that are kept."""


class IndexStatus(msgspec.Struct, frozen=True):
    """The objects that an index lacks at one moment."""

    table: str
    left_out: int
    """Objects of the table that are not in the index, because their value could not be decoded or the index's function
    raised. ``lookup`` does not find them.
    """
    failures: int
    """How many times that happened since the index was added."""
    examples: Mapping[str, str]
    """Some of these objects: key -> error."""


class Index:
    """One index: value -> keys. The caller holds a lock around every call. No call blocks longer than ``extract`` does.

    An object on which ``extract`` raises is not in the index. It is counted (:attr:`failing`, :attr:`failures`) and
    does not affect other objects. A field path goes through JSON objects and through attributes of typed values.
    """

    def __init__(self, name: str, table: str, extract: Extract, decode: Decode) -> None:
        if isinstance(extract, str) and not all(extract.split(".")):
            raise UsageError(f"the field path {extract!r} of index {name!r} has an empty part; write 'a.b'")
        if not isinstance(extract, str):
            check_function("by", extract, "one argument, the value, or a field path such as 'switch' or 'a.b'")
        self.name = name
        self.table = table
        self.failures = 0
        """How many times ``extract`` raised since the index was added."""
        self._extract = _by_path(extract.split(".")) if isinstance(extract, str) else extract
        self._decode = decode
        self._terms: dict[str, tuple[Hashable, ...]] = {}
        # dicts instead of sets: their order does not depend on PYTHONHASHSEED, so look-ups are repeatable
        self._keys: dict[Hashable, dict[str, None]] = {}
        self._failing: dict[str, str] = {}

    @property
    def failing(self) -> dict[str, str]:
        """The keys that are not in the index because ``extract`` raised, with the error's text of the first
        ``MAX_DESCRIBED`` of them ("" for the others).
        """
        return dict(self._failing)

    @property
    def left_out(self) -> int:
        """Number of objects that are not in the index because ``extract`` raised."""
        return len(self._failing)

    def status(self, examples: int) -> IndexStatus:
        """The objects that the index lacks, with at most ``examples`` of them by name."""
        with_text = dict(islice((item for item in self._failing.items() if item[1]), examples))
        named = with_text or dict(islice(self._failing.items(), examples))
        return IndexStatus(self.table, self.left_out, self.failures, named)

    def put(self, key: str, value: bytes | None, caught: type[BaseException] = BaseException) -> None:
        """Set the value of an object; None: it is deleted. Does not raise when ``extract`` raises.

        By default SystemExit and KeyboardInterrupt are caught, too: this is called in the middle of a step, also of a
        thread that unsubscribes, and the rest of the step would be lost. ``caught``: what is caught where it would not.
        """
        for term in self._terms.pop(key, ()):
            keys = self._keys[term]
            del keys[key]
            if not keys:
                del self._keys[term]
        self._failing.pop(key, None)
        if value is None:
            return
        try:
            terms = _terms(self._extract(decoded(self._decode, self.table, key, value)))
            found = [self._keys.setdefault(term, {}) for term in terms]  # compares terms, which may raise, too
        except caught as error:  # a user's function; the fault concerns this object only
            self.failures += 1
            self._failing[key] = described(error)[:MAX_TEXT] if len(self._failing) < MAX_DESCRIBED else ""
            return
        if terms:
            self._terms[key] = terms
            for keys in found:
                keys[key] = None

    def keys(self, value: object) -> list[str]:
        """The keys found under a value. Raises UsageError when the value is not hashable."""
        try:
            return list(self._keys.get(value, ()))
        except TypeError:
            raise UsageError(
                f"index {self.name!r} cannot look up a {type(value).__name__}; give one hashable value"
            ) from None


def _terms(result: Any) -> tuple[Hashable, ...]:
    """The result of ``extract`` as distinct hashables, in their order. Raises TypeError for an unhashable one."""
    if result is None:
        return ()
    many = isinstance(result, list | set | frozenset | Iterator)
    return tuple(dict.fromkeys(result if many else (result,)))


def _by_path(parts: list[str]) -> Callable[[Any], Any]:
    def field(value: Any) -> Any:
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
            if value is None:
                return None
        return value

    return field
