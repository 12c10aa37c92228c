"""Every Python sample of the README and of docs/ runs unchanged; every link between the pages has a target."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.store import migration, schema

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(((?:[^)#\s]+\.md)?)#([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def samples(page: Path) -> list[str]:
    return SAMPLE.findall(page.read_text())


@pytest.mark.parametrize("page", [page for page in PAGES if samples(page)], ids=name)
def test_the_samples_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "samples.py"
    script.write_text("\n".join(samples(page)))
    path = f"{ROOT}:{ROOT / 'drivers'}"
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_readme_has_two_short_samples() -> None:
    readme = samples(ROOT / "README.md")
    assert len(readme) == 2
    assert all(len(sample.strip().splitlines()) <= 9 for sample in readme)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_have_existing_targets(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page on GitHub."""
    found: Counter[str] = Counter()
    made = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", CODE.sub("", page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        made.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return made


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_a_heading_lead_to_it_on_github(page: Path) -> None:
    for target, anchor in ANCHOR.findall(page.read_text()):
        if not target.startswith(("http://", "https://")):
            other = page.parent / target if target else page
            assert anchor in anchors(other), f"{name(page)} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lines_have_at_most_100_characters(page: Path) -> None:
    """Except in generated tables and in code."""
    text = CODE.sub("", page.read_text())
    kept = ("|", "    ") if re.search(r"tools/(generate_|draw_)|<!-- late wakes -->", text) else ("    ",)
    assert [line for line in text.splitlines() if len(line) > 100 and not line.startswith(kept)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_have_no_placeholders(page: Path) -> None:
    assert not re.findall(r"@[A-Z_]{3,}@|\bTODO\b|\bTBD\b|\bFIXME\b", page.read_text())


def _programs() -> list[Path]:
    """Files that show how a program opens its store: pages, examples, tools, the programs of tests, the library."""
    folders = ("docs", "tools", "tests/e2e", "pubsub_lib")
    found = [each for folder in folders for each in sorted((ROOT / folder).rglob("*")) if each.suffix in (".md", ".py")]
    return [ROOT / "README.md", *found]


def test_every_program_opens_its_store_by_its_settings() -> None:
    old = re.compile(r"\bStore\(\s*[\w.]*settings\.store_url")
    wrong = [str(path.relative_to(ROOT)) for path in _programs() if old.search(path.read_text())]
    assert not wrong, f"write Store(settings), which obeys the operator's file, in {wrong}"


def test_every_sample_of_a_page_opens_its_store_by_settings() -> None:
    bare = re.compile(r"""^\s*(?:\w+ = |with )Store\(["']""", re.MULTILINE)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.py")]
    wrong = [str(path.relative_to(ROOT)) for path in pages if bare.search(path.read_text())]
    assert not wrong, f"write Store(settings), which obeys the operator's file, in {wrong}"


def test_landing_page_has_ten_lines_of_code() -> None:
    (sample,) = samples(ROOT / "docs" / "index.md")
    assert len([line for line in sample.splitlines() if line]) <= 10


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the tables in a section of a page, by their first cells."""
    section = (ROOT / "docs" / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {first: cells for first, *cells in found if re.search(r"\d", "".join(cells))}


def test_figures_beside_other_systems_are_those_of_the_performance_page() -> None:
    measured = rows("performance.md", "End to end, beside other systems")
    quoted = {name: cells for name, cells in rows("why-not.md", "Figures").items() if name != "system"}
    assert len(quoted) == 7
    for name, (one, four, median, _) in quoted.items():
        assert [one, four, median] == [measured[name][0], measured[name][1], measured[name][6]], name


def test_operating_page_names_the_recount_time_of_the_service() -> None:
    page = " ".join((ROOT / "docs" / "operating.md").read_text().split())
    hours = round(ServiceSettings().recount_time / 3600)
    assert f"the recount of the service reads all objects twice in each `recount_time` ({hours} hour)" in page


def test_upgrading_page_names_the_schema_and_what_migrations_do() -> None:
    page = " ".join((ROOT / "docs" / "upgrading.md").read_text().split())
    assert f"the same schema, `{schema.REVISION}` now" in page
    oldest, newest = migration.KNOWN[1], migration.KNOWN[-1]
    assert f"The migrations so far (`{oldest}` to `{newest}`) only add tables and columns." in page
    files = sorted((ROOT / "pubsub_lib" / "store" / "migrations" / "versions").glob("r0*.py"))
    assert len(files) == len(migration.KNOWN)
    used = {each for path in files for each in re.findall(r"\bop\.(\w+)", path.read_text())}
    assert used == {"create_table", "create_index", "add_column", "get_bind", "execute"}
    assert not any("def downgrade" in path.read_text() for path in files), "see: no migration can be undone"


def test_each_attack_names_a_test_that_exists() -> None:
    page = (ROOT / "docs/contributing/attacks.md").read_text()
    named = re.findall(r"\.\n  `(tests/[\w/]+\.py)`\n  `(test_\w+)`$", page, re.MULTILINE)
    assert len(named) == len(re.findall("^- ", page, re.MULTILINE)) >= 50
    for path, function in named:
        assert f"def {function}(" in (ROOT / path).read_text(), function


def test_security_policy_has_a_contact_a_time_and_the_versions_that_get_fixes() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    assert 'privately, by the "Report a vulnerability" button' in policy
    assert re.search(r"A maintainer answers within a \w+\.", policy)
    unreleased = not re.search(r"^## \[?\d", changelog := (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert ("No version has been released yet, so only the main branch gets fixes." in policy) == unreleased
    assert ("released yet" in " ".join(changelog.split())) == unreleased
    assert "`SECURITY.md`" in (ROOT / "docs/security.md").read_text()
