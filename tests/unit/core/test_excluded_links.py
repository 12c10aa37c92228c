"""Rule 14: what an excluded publisher sends is compared with the next reading of the store."""

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.excluded_links import MAX_KEPT, ExcludedLink, ExcludedLinks
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Delta, Full, Incomplete, Point, SyncAnswer
from pubsub_lib.core.reorder_buffer import WaitingSpace
from tests.unit.core.builders import History

HONEST = ("api-1", "1" * 32)
LIAR = ("api-1", "2" * 32)


class Case:
    """A chain that a delta brought to the head of a history, or only to its begin."""

    def __init__(self, name: str = "t") -> None:
        self.history = History()
        self.links = self.history.some(5)
        self.chain = Chain(name, WaitingSpace(Limits()), self.links[0].point, 0.0)
        self.excluded = ExcludedLinks()

    def add(self, point: Point, publisher: tuple[str, str] = LIAR, at: float = 1.0) -> None:
        self.excluded.add(ExcludedLink(self.chain.name, point, publisher, at))

    def state(self, position: int, publisher: tuple[str, str] = LIAR) -> None:
        """A hello with this position of the store."""
        self.excluded.add(ExcludedLink(None, Point(position, 1), publisher, 1.0))

    def read(self, part: Delta | Full | Incomplete | None = None) -> dict[tuple[str, str], float]:
        """A reading of the chain, from its begin to its end."""
        self.excluded.reading([self.chain.name])
        return self.answered(part)

    def answered(self, part: Delta | Full | Incomplete | None = None) -> dict[tuple[str, str], float]:
        if part is None:
            part = Delta(self.links[1:], self.history.point)
            for link in part.links:
                self.chain.advance(link.point, 2.0)
        answer = SyncAnswer(self.history.point, {self.chain.name: part})
        return self.excluded.false(answer, {self.chain.name: self.chain}.get)


def test_committed_links_accuse_no_publisher() -> None:
    for name in ("t", ALL):
        case = Case(name)
        for link in case.links:
            case.add(link.point, HONEST)
        assert case.read() == {}


def test_links_that_the_store_does_not_have_accuse_their_publisher() -> None:
    case = Case()
    case.add(case.links[1].point, HONEST)
    case.add(Point(case.links[2].point.position, 4711), at=3.0)
    case.add(Point(case.history.point.position + 1, 4711), at=4.0)
    assert case.read() == {LIAR: 4.0}


def test_position_of_a_hello_beyond_the_store_accuses_its_publisher() -> None:
    case = Case()
    case.state(case.history.point.position, HONEST)
    case.state(case.history.point.position + 1)
    assert case.read(Incomplete()) == {LIAR: 1.0}, "each answer has the store's position"
    assert case.read(Incomplete()) == {}


def test_link_is_judged_once() -> None:
    case = Case()
    case.add(Point(999, 1))
    assert case.read() == {LIAR: 1.0}
    assert case.read() == {}


def test_link_that_arrives_during_the_reading_waits_for_the_next_one() -> None:
    case = Case()
    case.excluded.reading(["t"])
    case.add(Point(999, 1))
    assert case.answered() == {}
    assert case.read() == {LIAR: 1.0}


def test_reading_that_fails_judges_nothing_and_the_next_one_does() -> None:
    case = Case()
    case.add(Point(999, 1))
    case.excluded.reading(["t"])
    assert case.read() == {LIAR: 1.0}


def test_reading_of_another_chain_judges_nothing() -> None:
    case = Case()
    case.add(Point(999, 1))
    case.excluded.reading(["other"])
    assert case.answered() == {}
    assert case.read() == {LIAR: 1.0}


def test_full_answer_shows_only_what_is_beyond_its_head() -> None:
    case = Case()
    case.add(Point(2, 4711))
    assert case.read(Full({}, case.history.point)) == {}
    case.add(Point(999, 1))
    assert case.read(Full({}, case.history.point)) == {LIAR: 1.0}


def test_full_sync_forgets_the_points_before_it_so_links_before_it_are_not_judged() -> None:
    """An honest publisher that is excluded once: its links of before a full sync are no lies."""
    case = Case()
    case.chain.jump(case.history.point, 2.0)
    case.add(case.links[2].point, HONEST)
    case.add(Point(999, 1))
    assert case.read(Delta([], case.history.point)) == {LIAR: 1.0}


def test_incomplete_delta_judges_nothing() -> None:
    case = Case()
    case.add(Point(999, 1))
    assert case.read(Incomplete()) == {}


def test_delta_that_the_chain_did_not_reach_shows_only_what_is_beyond_its_head() -> None:
    case = Case()
    case.add(Point(2, 4711))
    case.add(Point(999, 1), HONEST)
    assert case.read(Delta(case.links[2:], case.history.point)) == {HONEST: 1.0}


def test_chain_that_is_not_followed_any_more_judges_nothing() -> None:
    case = Case()
    case.add(Point(999, 1))
    case.excluded.reading(["t"])
    answer = SyncAnswer(case.history.point, {"t": Delta([], case.history.point)})
    assert case.excluded.false(answer, lambda name: None) == {}


def test_number_of_links_is_bounded_and_the_newest_stay() -> None:
    case = Case()
    case.add(Point(999, 1))
    for _ in range(MAX_KEPT):
        case.add(case.links[0].point, HONEST)
    assert case.read() == {}
    case.add(case.links[0].point, HONEST)
    case.excluded.reading(["t"])
    for _ in range(MAX_KEPT):
        case.add(case.links[0].point, HONEST)
    case.excluded.reading(["t"])
    assert len(case.excluded._asked) == MAX_KEPT
