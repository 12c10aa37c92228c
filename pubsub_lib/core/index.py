"""Secondary indexes over the objects that a replica shows."""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from pubsub_lib.core.events import Decode, decoded
from pubsub_lib.errors import UsageError

Extract = Callable[[Any], Any] | str
"""From a decoded value to what it is found under: a field path (``"switch"``, ``"binding.chassis"``), or a
function that returns one hashable, or a list, set or iterator of hashables. None, and a missing field: not in
the index.
"""


class Index:
    """One index: value -> keys. No lock inside; the caller holds one, and no call blocks longer than
    ``extract`` does.

    An object on which ``extract`` raises is not in the index; it is counted (:attr:`failing`,
    :attr:`failures`) and never stops anything else. A field path goes through JSON objects and through
    attributes of typed values.
    """

    def __init__(self, name: str, table: str, extract: Extract, decode: Decode) -> None:
        if isinstance(extract, str) and not all(extract.split(".")):
            raise UsageError(f"the field path {extract!r} of index {name!r} has an empty part; write 'a.b'")
        self.name = name
        self.table = table
        self.failures = 0
        """How many times ``extract`` raised, ever."""
        self._extract = _by_path(extract.split(".")) if isinstance(extract, str) else extract
        self._decode = decode
        self._terms: dict[str, tuple[Hashable, ...]] = {}
        # dicts instead of sets: their order does not depend on PYTHONHASHSEED, so lookups are repeatable
        self._keys: dict[Hashable, dict[str, None]] = {}
        self._failing: dict[str, str] = {}

    @property
    def failing(self) -> dict[str, str]:
        """The keys that are not in the index because ``extract`` raised, each with the error's text."""
        return dict(self._failing)

    def put(self, key: str, value: bytes | None) -> None:
        """Tell that an object now has this value; None: it is gone. Never raises what ``extract`` raises."""
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
        except Exception as error:  # noqa: BLE001 - a user's function; this one object's fault alone
            self.failures += 1
            self._failing[key] = f"{type(error).__name__}: {error}"
            return
        if terms:
            self._terms[key] = terms
            for term in terms:
                self._keys.setdefault(term, {})[key] = None

    def keys(self, value: object) -> list[str]:
        """The keys found under a value. Raises UsageError when the value is not hashable."""
        try:
            return list(self._keys.get(value, ()))
        except TypeError:
            raise UsageError(
                f"index {self.name!r} cannot look up a {type(value).__name__}; give one hashable value"
            ) from None


def _terms(result: Any) -> tuple[Hashable, ...]:
    """What ``extract`` returned as distinct hashables, in their order. Raises TypeError for what is not
    hashable.
    """
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
