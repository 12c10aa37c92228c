"""A summary as text, and as files beside the tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.audit.summary import BITS, CORRUPT, DIVERGENCE, INCOMPLETE, LATE, LOSS, POLICY, Balance, Summary
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pubsub_lib.audit.pipeline import Tables

SUMMARY: Final = "summary.json"
TABLES: Final = ("delivery", "strays", "store", "state", "syncs", "skews")

_MEANING: Final = {
    LOSS: "something was lost and not repaired",
    CORRUPT: "something was corrupt, never published, or sent to the wrong place",
    DIVERGENCE: "a replica or the changelog is not what it should be",
    LATE: "something came later than the bound",
    POLICY: "something was applied twice, or an older version over a newer one",
    INCOMPLETE: "the evidence is incomplete",
}


def verdict(summary: Summary) -> str:
    """The result in one sentence."""
    expected = sum(balance.expected for balance in summary.balance.values())
    if not summary.exit_code:
        return f"Nothing is wrong: of {expected} expected deliveries every one is accounted for."
    said = [meaning for bit, meaning in _MEANING.items() if summary.exit_code & bit]
    return f"Of {expected} expected deliveries: {'; '.join(said)} (exit code {summary.exit_code})."


def text(summary: Summary) -> Iterator[str]:
    """The report in lines."""
    yield verdict(summary)
    yield from (f"problem: {each}" for each in summary.problems)
    yield from (f"silent run, neither ended nor writing: {run}" for run in summary.silent)
    yield from (f"no window is closed yet{_of(domain)}" for domain in summary.open_domains)
    for domain, balance in summary.balance.items():
        yield ""
        yield _balance(domain, balance)
        for count in summary.counts:
            if count.domain == domain:
                more = ", ".join(each for each in (count.detail, count.blame and f"blame: {count.blame}") if each)
                yield f"  {count.of:<9} {count.verdict:<18} {count.count:>12}  {more}".rstrip()
    if summary.first:
        yield ""
        yield "first of each kind:"
        for each in summary.first:
            yield "  " + " ".join(f"{name}={value}" for name, value in each.items() if value not in ("", None, False))


def _of(domain: str) -> str:
    return f" of {domain}" if domain else ""


def _balance(domain: str, balance: Balance) -> str:
    sums = " + ".join(
        f"{getattr(balance, name)} {name}" for name in ("delivered", "lost", "pending", "excused", "unknown")
    )
    return f"balance{_of(domain)}: {balance.expected} expected = {sums}"


def check_free(folder: Path) -> None:
    """Raises ConfigError when results cannot go there: it is a file, or not empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{folder} is there and not an empty folder; name a new one for the results")


def save(tables: "Tables", summary: Summary, folder: Path) -> None:
    """Write the tables as Parquet and the summary as JSON. Blocks."""
    for name in TABLES:
        getattr(tables, name).write.parquet(str(folder / name))
    save_summary(summary, folder)


def save_summary(summary: Summary, folder: Path) -> None:
    """Write only the summary, which is all there is without input."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(summary)))


def read_summary(folder: Path) -> Summary:
    """What ``save`` wrote. Raises ConfigError when it is not there or is something else."""
    try:
        return msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Summary)
    except OSError as error:
        raise ConfigError(
            f"{folder / SUMMARY} cannot be read ({error.strerror}); name the folder of --out of an audit"
        ) from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{folder / SUMMARY} is not a summary of an audit ({error}); audit again") from error


assert set(_MEANING) == set(BITS)  # every bit has its words
