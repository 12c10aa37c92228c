"""Decodes entries for people: an entry of an unknown kind is shown, too."""

from typing import Any, Final, get_args

import msgspec

from pubsub_lib.journal.entries import UNDECODABLE, Entry
from pubsub_lib.journal.rows import Kind

KINDS: Final = frozenset(get_args(Kind))
_KIND: Final = Entry.__struct_fields__.index("kind")
_OUTCOMES: Final = Entry.__struct_fields__.index("outcomes")

_decode = msgspec.msgpack.Decoder(Entry).decode


def entry_of(body: bytes) -> Entry:
    """The entry in a frame's body. Its kind and its outcomes may be any texts, as a newer version may write them.

    Raises ValueError, of which msgspec's errors are subclasses, or RecursionError when it cannot be decoded.
    """
    try:
        return _decode(body)
    except UNDECODABLE as error:
        fields: Any = msgspec.msgpack.decode(body)
        if not isinstance(fields, list) or len(fields) <= _KIND:
            raise
        kind, outcomes = fields[_KIND], fields[_OUTCOMES] if len(fields) > _OUTCOMES else []
        try:
            kind, outcomes = msgspec.convert([kind, outcomes], tuple[str, list[str]])
        except msgspec.ValidationError:
            raise error from None
        fields[_KIND : _OUTCOMES + 1] = ["mark", []]
        return msgspec.structs.replace(msgspec.convert(fields, Entry), kind=kind, outcomes=outcomes)
