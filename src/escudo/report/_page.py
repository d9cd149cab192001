"""One self-contained HTML page: what every kind of report shares.

A page is one file without scripts. It loads nothing, prints well, reads on a phone, and follows the reader's light or
dark setting. A kind of report is a template that extends ``page.html.j2`` and fills its ``body``. Most say what is
promised: here are the words for it, in one sentence, in a causal picture, and for those who share more than one row.
"""

from __future__ import annotations

import math
import os
import re
from decimal import ROUND_CEILING, Decimal
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo._card import CUSTODIAN_ONLY
from escudo.errors import InputError
from escudo.privacy import Guarantee, guarantee_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_POWER = re.compile(r"\be\^([0-9.]+[0-9])")
_GENERATOR = '<meta name="generator" content="escudo '


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("escudo.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["prose"] = prose
    environment.globals["CUSTODIAN_ONLY"] = CUSTODIAN_ONLY
    return environment


def prose(text: str) -> Markup:
    """Return text as markup: ``e^2.00`` as a power, and no line break inside ``X = x``."""
    from markupsafe import Markup, escape

    unbroken = str(escape(text)).replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return Markup(_POWER.sub(r"e<sup>\1</sup>", unbroken))


def render(template: str, *, kind: str, title: str, lead: str, source: str = "", **content: Any) -> str:
    """Return a page as HTML text.

    Args:
        template: The template of this kind of report, such as ``effects.html.j2``.
        kind: What kind of report it is, in a word or two.
        title: The heading: what the page shows.
        lead: The finding, in one sentence.
        source: The file or dataset it is about.
        content: What the template needs. Text is escaped; markup must be a ``markupsafe.Markup``.
    """
    from markupsafe import Markup

    environment = _environment()
    head = {"kind": kind, "title": title, "lead": lead, "source": source, "version": version("escudo")}
    return environment.get_template(template).render(head, css=Markup(source_of("page.css")), **content)


def source_of(name: str) -> str:
    """Return a file of the templates' folder as it is, such as a style or a script."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def fragment(template: str, **content: Any) -> Markup:
    """Return a part of a page as markup; text in ``content`` is escaped, as by :func:`render`."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(**content))


def is_report(path: Path) -> bool:
    """Return whether a file is a report of escudo, which may be replaced by another."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return _GENERATOR in file.read(2000)


def check_page(path: str | Path) -> Path:
    """Check that a page can be written there, before anything is worked out for it.

    Raises:
        InputError: If the path holds something that is not a report of escudo, or cannot be written.
    """
    file = Path(path)
    try:
        if file.exists() and not is_report(file):
            raise InputError(f"{file.name!r} exists and is not a report of escudo; choose another name.")
    except OSError as error:
        raise InputError(f"Cannot write the report {file.name!r}: {error.strerror or error}.") from error
    home = file.resolve().parent
    if not (home.is_dir() and os.access(home, os.W_OK | os.X_OK)):
        raise InputError(f"Cannot write the report {file.name!r}: nothing can be written in '{home}'.")
    return file


def write(html: str, path: str | Path) -> Path:
    """Write a page, replacing an earlier report but no other file; one for the custodian is its owner's to read only.

    Raises:
        InputError: If the path holds something that is not a report of escudo, or cannot be written.
    """
    file = check_page(path)
    try:
        if f'<div class="marking">{CUSTODIAN_ONLY}</div>' in html:
            file.touch(mode=0o600)
            file.chmod(0o600)
        file.write_text(html, encoding="utf-8")
    except OSError as error:
        raise InputError(f"Cannot write the report {file.name!r}: {error.strerror or error}.") from error
    return file


_USUAL_DELTA = 1e-6
_LARGEST = 20.0  # above it, e^ε tells nobody anything


def epsilon_delta(guarantee: Guarantee) -> tuple[float, float]:
    """Return the (ε, δ) to show: the guarantee's own, or where it is in another notion, that at δ = 1e-6."""
    if guarantee.epsilon is not None:
        return guarantee.epsilon, guarantee.delta
    return guarantee.epsilon_at(_USUAL_DELTA), _USUAL_DELTA


def rounded_up(epsilon: float) -> str:
    """Return a loss with two decimals, rounded up; two digits if it is small.

    >>> rounded_up(0.99994), rounded_up(2.2797), rounded_up(0.01234), rounded_up(math.inf)
    ('1.00', '2.28', '0.013', '∞')
    """
    if math.isinf(epsilon):
        return "∞"
    number = Decimal(f"{epsilon:.12g}")  # forgives the last bits of a float
    places = 2 if epsilon >= 0.1 or epsilon == 0 else 1 - number.adjusted()
    return f"{number.quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING):f}"


def power_of_ten(delta: float) -> str:
    """Return a small probability as people write it.

    >>> power_of_ten(1e-6), power_of_ten(2.5e-7), power_of_ten(0.01), power_of_ten(0.0)
    ('10⁻⁶', '2.5 × 10⁻⁷', '0.01', '0')
    """
    if delta == 0 or delta >= 1e-3:
        return f"{delta:g}"
    factor, _, power = f"{delta:.3g}".partition("e") if "e" in f"{delta:.3g}" else f"{delta:.2e}".partition("e")
    raised = "10" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = f"{float(factor):g}"
    return raised if factor == "1" else f"{factor} × {raised}"


def one_in(delta: float) -> str:
    """Return a probability for people, rounded up: ``1 in 1,000,000``."""
    return f"1 in {math.floor(1 / delta * (1 + 1e-9)):,}"


def promise_sentence(guarantee: Guarantee) -> str:
    """Return what is promised, as said to one person in the table.

    >>> promise_sentence(Guarantee(epsilon=1.0, delta=1e-6))
    'Whatever your row says, it makes nothing in this release more than 2.72 times (e^1.00) as likely, except with \
probability 1 in 1,000,000.'
    """
    if guarantee.none:
        return (
            "Nothing is promised to anybody in the table: this was made without privacy, and must not be handed over."
        )
    epsilon, delta = epsilon_delta(guarantee)
    several = guarantee.unit == "person" and guarantee.max_rows_per_person != 1
    if guarantee.relation == "replace_one":
        whatever = "Whatever your rows say, they make" if several else "Whatever your row says, it makes"
    else:
        rows = "your rows are" if several else "your row is"
        whatever = f"Whether or not {rows} in the table, that makes"
    if math.isinf(epsilon):
        return f"At δ = {power_of_ten(delta)} this release promises nothing."
    power = f"e^{rounded_up(epsilon)}"
    much = f"{_times(epsilon)} times ({power})" if epsilon <= _LARGEST else f"{power} times"
    aside = f", except with probability {one_in(delta)}" if delta else ""
    return f"{whatever} nothing in this release more than {much} as likely{aside}."


def promise_picture(guarantee: Guarantee) -> str:
    """Return the causal picture behind the promise as SVG: persons, rows, mechanism, release, with ε on the arrow."""
    from escudo.causal import CausalGraph

    epsilon, delta = epsilon_delta(guarantee)
    limit = guarantee.max_rows_per_person
    rows = "their row" if limit in (None, 1) else f"their rows, at most {limit}"
    person, others, all_rows = "one person", "everybody else", "all other rows"
    noise, release = "measured, with noise", "synthetic data, model, report"
    bound = f"ε ≤ {rounded_up(epsilon)}" + (f", δ = {power_of_ten(delta)}" if delta else "")
    graph = CausalGraph.from_edges(
        [(person, rows), (others, all_rows), (rows, noise), (all_rows, noise), (noise, release)],
        nodes=[person, others, rows, all_rows, noise, release],
        exposures=[person],
        outcomes=[release],
    )
    labels = {(rows, noise): bound, (noise, release): "adds nothing"}
    return graph.to_svg(edge_labels=labels, title="How one person reaches the release", direction="down")


def who_gets_what(guarantee: Guarantee) -> list[dict[str, Any]]:
    """Return what is promised to one person, a household and people with several rows, all at the same δ.

    Tables that differ in k records are k neighbouring steps apart (group privacy, ``Event.stretched``).
    """
    own, delta = epsilon_delta(guarantee)
    limit = guarantee.max_rows_per_person
    if guarantee.unit == "row":
        who = {
            1: ("A person with one row", ""),
            2: ("A couple", "or a person with 2 rows"),
            4: ("A household of four", "or a person with 4 rows"),
            10: ("A person with 10 rows", "or ten people who share a secret"),
        }
    else:
        all_of = "their one row" if limit == 1 else f"at most {limit} of their rows count; more are left out"
        who = {
            1: ("A person with all of their rows", all_of),
            2: ("A couple", "both with all of their rows"),
            4: ("A household of four", "each with all of their rows"),
        }
    found = []
    for steps, (name, note) in who.items():
        try:
            group = guarantee_of(guarantee.event.stretched(steps), delta=delta, max_rows_per_person=limit)
            epsilon = own if steps == 1 else group.epsilon_at(delta)
            front = [(epsilon, delta), *((at, group.delta_at(at)) for at in _GUESSES)]
        except InputError:  # nothing is left of the promise
            epsilon, front = math.inf, [(math.inf, 1.0)]
        found.append(
            {
                "who": name,
                "note": note,
                "epsilon": rounded_up(epsilon),
                "times": _times(epsilon) if epsilon < math.log(1e5) else f"e^{rounded_up(epsilon)}",
                "guess": _even_guess(front),
            }
        )
    return found


def _times(epsilon: float) -> str:
    """Return e^ε with three digits, or two beyond the leading 1, rounded up.

    >>> _times(1.0), _times(5.0), _times(0.001), _times(0.0)
    ('2.72', '149', '1.0011', '1.00')
    """
    factor = Decimal(f"{math.exp(epsilon):.12g}")
    places = 2 - factor.adjusted()
    if 1 < factor < Decimal("1.1"):
        places = 1 - (factor - 1).adjusted()
    return f"{factor.quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING):,f}"


_GUESSES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.4)
"""Where on its curve a promise is looked at for what a guess can gain."""


def _even_guess(front: list[tuple[float, float]]) -> str:
    r"""Return how often the best guess between two equally likely values of the record can be right, in per cent.

    At most :math:`(e^ε + δ) / (1 + e^ε)`, by the trade-off region of an (ε, δ)-private release; that holds for every
    point (ε, δ) of its curve, and the least of them counts. Attacks are measured against the same bound
    (:func:`escudo.attacks.ceiling_of`).

    Reference:
        P. Kairouz, S. Oh, P. Viswanath (2015), "The composition theorem for differential privacy", ICML, theorem 2.1.
    """
    share = min(1.0 if at > 700 else (math.exp(at) + delta) / (1 + math.exp(at)) for at, delta in front)
    return f"{min(math.ceil(share * 1000 - 1e-9) / 10, 100.0):.1f}"
