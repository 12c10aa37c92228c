"""A lost wake-up delays its effect at most until the thread's next tick (docs/contributing/scheduler.md)."""

from pathlib import Path

import pytest

from tests.scheduler.late_wakes import CASES, Case, delays, table

SEEDS = range(25)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lost_wake_up_delays_the_effect_until_the_next_tick(case: Case) -> None:
    prompt, late = max(delays(case, False, SEEDS)), max(delays(case, True, SEEDS))
    assert prompt <= case.prompt
    assert case.prompt < late <= case.prompt + case.tick  # the wake-up was really lost


def test_page_has_every_case_with_its_bounds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contributing" / "scheduler.md").read_text(encoding="utf-8")
    inside = page.split("<!-- late wakes -->\n")[1].split("<!-- /late wakes -->")[0]

    def stated(lines: str) -> list[list[str]]:
        """All columns but the measured ones: the fourth and the last."""
        return [
            cells[:3] + cells[4:6]
            for cells in ([each.strip() for each in line.split("|")[1:-1]] for line in lines.splitlines())
        ]

    assert stated(inside) == stated(table(range(1)))
