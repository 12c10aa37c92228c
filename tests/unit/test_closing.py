"""All parts are closed, whatever one of them raises."""

import pytest

from pubsub_lib.closing import close_all


def test_all_steps_are_taken_in_order_and_the_last_exception_is_raised() -> None:
    taken: list[str] = []

    def failing(name: str, error: BaseException) -> None:
        taken.append(name)
        raise error

    with pytest.raises(ValueError, match="second") as raised:
        close_all(
            lambda: taken.append("first"),
            None,
            lambda: failing("interrupted", KeyboardInterrupt()),
            lambda: failing("failing", ValueError("second")),
            lambda: taken.append("last"),
        )
    assert taken == ["first", "interrupted", "failing", "last"]
    assert isinstance(raised.value.__context__, KeyboardInterrupt)
