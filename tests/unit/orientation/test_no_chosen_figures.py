"""What is said to people about directions: no figure that comes from pairs on which something was chosen.

Settings were chosen on the real pairs, so how many of those are answered, and how many rightly, is for the pages of the
experiments, which say so beside the figure: not for the command, the card, the report, the manual or the front page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOLD = [
    *ROOT.glob("*.md"),
    *sorted({*(ROOT / "docs").rglob("*")} - {ROOT / "docs/papers.md"}),  # which is the experiments' own page
    *sorted((ROOT / "examples").rglob("*")),
    *sorted((ROOT / "src/escudo").rglob("*")),  # what commands, cards, pages and the studio say, and what help() says
]
KINDS = {".md", ".py", ".j2", ".js", ".html", ".ipynb", ".svg", ".toml"}
NUMBERS = r"(?:one|two|three|four|five|six|seven|eight|nine)"
FIGURE = re.compile(rf"\d|%|\b{NUMBERS} (?:in|of|out of) {NUMBERS}\b|\b{NUMBERS} in ten\b", re.IGNORECASE)
ABOUT = re.compile(r"\breal pairs\b|\bT(?:ü|ue)bingen\b", re.IGNORECASE)
SIMULATED = re.compile(r"\bsimulated (?:pairs|families)\b", re.IGNORECASE)
TOLD_APART = re.compile(r"\b(?:chosen|fitted) on\b|\bleft out\b")
FITTED_ON = "87 real pairs of 30 families"
"""How the table of probabilities was made is said in the source beside it: counts of pairs, not of successes."""


def sentences(text: str) -> list[str]:
    plain = re.sub(r'"\s*\n\s*f?"', "", text)  # strings that go on in the next line
    return re.split(r"(?<=[.;:!?|])\s+", re.sub(r"\s+", " ", plain))


def chosen_figures(text: str) -> list[str]:
    return [one for one in sentences(text) if ABOUT.search(one) and FIGURE.search(one) and FITTED_ON not in one]


def untold_figures(text: str) -> list[str]:
    """Return figures about simulated pairs that do not say whether something was chosen on their families."""
    those = [one for one in sentences(text) if SIMULATED.search(one) and FIGURE.search(one)]
    return [one for one in those if not TOLD_APART.search(one)]


@pytest.mark.parametrize(
    "path", [path for path in TOLD if path.suffix in KINDS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_nothing_that_was_chosen_on_is_quoted(path: Path) -> None:
    assert chosen_figures(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "path", [path for path in TOLD if path.suffix == ".md"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_figures_about_simulated_pairs_say_whether_something_was_chosen_on_them(path: Path) -> None:
    assert untold_figures(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "said",
    [
        "Of real pairs about one in eight gets an answer.",
        "It is answered; of real pairs 13 % are answered, 40 % were wanted |",
        '"Most pairs get no verdict: about one in eight "\n    "real pairs did."',
        "On the Tübingen pairs it is right in 0.84.",
    ],
)
def test_such_a_figure_would_be_seen(said: str) -> None:
    assert chosen_figures(said)


def test_an_untold_figure_would_be_seen() -> None:
    assert untold_figures("On 11 simulated families 87 to 100 % right.")
    assert not untold_figures("On other draws of 11 simulated families that settings were chosen on, 87 % right.")
