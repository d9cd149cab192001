"""One word, one thing: the documentation uses the words of the glossary in ARCHITECTURE.md, and not their rivals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
GLOSSARY = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)


def glossary() -> dict[str, list[str]]:
    """Return each word with its rivals."""
    text = (HOME / "ARCHITECTURE.md").read_text()
    part = text[text.index("## One word, one thing") : text.index("## Dependencies")]
    rows = GLOSSARY.findall(part)[1:]
    return {word: [rival.strip() for rival in rivals.replace(" or ", ", ").split(",") if rival.strip()]
            for word, _, rivals in rows}  # fmt: skip


def test_the_glossary_has_words_and_rivals() -> None:
    words = glossary()
    assert len(words) > 10
    assert "user-level" in words["unit"]


PAGES = [HOME / "README.md", *sorted((HOME / "docs").rglob("*.md")), *sorted((HOME / "src").rglob("README.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_a_page_uses_the_words_of_the_glossary(page: Path) -> None:
    text = " ".join(page.read_text().lower().split())
    used = [
        f"{rival!r} for {word!r}"
        for word, rivals in glossary().items()
        for rival in rivals
        if re.search(rf"\b{re.escape(rival.lower())}\b", text)
    ]
    assert not used, f"{page.name} says {', '.join(used)}"


def test_a_browser_offers_every_generator() -> None:
    from escudo.synthesis import GENERATORS

    page = (HOME / "src/escudo/studio/templates/budget.html.j2").read_text()
    (listed,) = re.findall(r'name="generator">{% for name in \[(.*?)\] %}', page)
    assert set(re.findall(r'"([\w-]+)"', listed)) == {"auto", *GENERATORS}
