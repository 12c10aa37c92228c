"""The tree of errors: one root, and the module's docstring shows the same tree."""

import inspect
import pickle

import pytest

from pubsub_lib import errors
from pubsub_lib.core.model import Point
from pubsub_lib.errors import FrameError, HistoryChanged, OutcomeUnknown, PubSubError, WaitTimeout, described

ALL_ERRORS = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, PubSubError)]


def tree(root: type[PubSubError]) -> dict[str, object]:
    return {each.__name__: tree(each) for each in root.__subclasses__() if each.__module__ == errors.__name__}


def drawn() -> dict[str, object]:
    """The tree in the docstring: a name's column determines its parent."""
    root: dict[str, object] = {}
    path: list[tuple[int, dict[str, object]]] = [(-1, root)]
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip("│├└─ ").split(" ")[0]
        if not line.startswith("    ") or not name:
            continue
        column = line.index(name)
        while path[-1][0] >= column:
            path.pop()
        child: dict[str, object] = {}
        path[-1][1][name] = child
        path.append((column, child))
    return root


def test_docstring_shows_the_tree_of_errors() -> None:
    assert drawn() == {"PubSubError": tree(PubSubError)}


@pytest.mark.parametrize("error", ALL_ERRORS)
def test_every_error_has_a_docstring(error: type[PubSubError]) -> None:
    assert error.__doc__
    assert issubclass(error, Exception)


def test_errors_have_their_extra_attributes() -> None:
    assert FrameError("cut off", "truncated").reason == "truncated"
    unknown = OutcomeUnknown("gone during COMMIT", 77)
    assert (unknown.nonce, unknown.position) == (77, None)
    assert issubclass(WaitTimeout, TimeoutError)


@pytest.mark.parametrize("error", ALL_ERRORS)
def test_every_error_can_be_pickled(error: type[PubSubError]) -> None:
    extra = {FrameError: ("truncated",), OutcomeUnknown: (77, 3), HistoryChanged: (Point(7, 77),)}.get(error, ())
    original = error("a sentence", *extra)
    copy = pickle.loads(pickle.dumps(original))
    assert type(copy) is error
    assert str(copy) == "a sentence"
    assert vars(copy) == vars(original)


class Unprintable(BaseException):
    def __str__(self) -> str:
        raise SystemExit("no text")


def test_described_error_has_type_and_message_and_never_raises() -> None:
    assert described(KeyError("mac")) == "KeyError: 'mac'"
    assert described(MemoryError()) == "MemoryError"
    assert described(Unprintable()) == "Unprintable"
