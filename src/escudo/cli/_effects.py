"""``escudo effects`` and ``escudo definitions``: what changes what, exactly, in a structural equation model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import Answer, flag, plain_table
from escudo.cli._options import command
from escudo.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from escudo.causal import SEM
    from escudo.effects import Definitions, Effect, Survey, SurveyRow

_Model = Annotated[Path, typer.Argument(metavar="FILE", help="A structural equation model, such as survey.sem.")]


@dataclass(frozen=True, kw_only=True)
class EffectsOptions:
    """What ``escudo effects`` is told."""

    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A model, such as survey.sem.")] = None
    of: Annotated[str | None, typer.Option(metavar="X,Y", help="Variables to change; all by default.")] = None
    on: Annotated[str | None, typer.Option(metavar="O", help="Variables to observe; by default the outputs.")] = None
    joint: Annotated[bool, flag("--joint", "Change the variables of --of together.")] = False
    direct: Annotated[
        str | None, typer.Option(metavar="M,N", help="Hold these fixed: the direct effect, past them.")
    ] = None
    through: Annotated[
        str | None, typer.Option(metavar="C,D", help="Follow only the arrows into these children of --of.")
    ] = None
    own: Annotated[bool, flag("--own", "In the model's own population, not the worst case over all.")] = False
    ledger: Annotated[
        str | None, typer.Option(metavar="URL", help="Instead of a model: the releases recorded in a ledger.")
    ] = None
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="The dataset in the ledger.")] = None
    people: Annotated[int, typer.Option(metavar="K", min=1, max=1000, help="With --ledger: size of a household.")] = 3
    report: Annotated[
        Path | None, typer.Option("--report", "-r", metavar="FILE", help="Write a page with the diagram.")
    ] = None

    @property
    def population(self) -> str | None:
        """The model's own, or None for the worst case over all."""
        return "own" if self.own else None


@command
def effects(asked: EffectsOptions) -> Answer:
    """Say how much each variable of a model can change its outputs: exact ε, where it is attained, and why.

    In JSON an infinite ε is the text "inf".

    Example: escudo effects survey.sem --of R1 --report effects.html
    """
    if asked.report is not None:
        from escudo.report import check_page

        check_page(asked.report)
    if asked.ledger is not None:
        if asked.file is not None or asked.dataset is None:
            raise InputError("with --ledger give --dataset NAME and no model file.")
        return _ledger_effects(asked.ledger, asked.dataset, asked)
    if asked.file is None:
        raise InputError("name a model file such as survey.sem, or use --ledger URL --dataset NAME.")
    from escudo.causal import SEM

    sem = SEM.read(asked.file)
    chosen, observed = _names(asked.of), _names(asked.on)
    if asked.joint or asked.direct is not None or asked.through is not None:
        if not chosen:
            raise InputError("--joint, --direct and --through need --of X,Y: whose effect is asked?")
        if asked.report is not None:
            raise InputError("--report shows all effects of a model; leave out --joint, --direct and --through.")
        found = _single_effects(sem, asked)
        payload = {"file": str(asked.file), "effects": [one.to_json() for one in found]}
        return Answer(payload, lambda console: console.print(_effects_table(found)))
    from escudo.effects import survey

    table = survey(sem, of=chosen or None, on=observed or None, population=asked.population)
    if asked.report is not None:
        from escudo.causal.formats import read_text
        from escudo.report import effects_page, write

        write(
            effects_page(sem, found=table, source=asked.file.name, text=read_text(asked.file, what="model").strip()),
            asked.report,
        )

    def human(console: Console) -> None:
        console.print(_survey_table(table))
        for one, sum_ in table.together:
            console.print(_together(one, sum_), markup=False)
        if asked.report is not None:
            console.print(f"Report   {asked.report}", markup=False)

    written = str(asked.report) if asked.report else None
    return Answer({"file": str(asked.file), **table.to_json(), "report": written}, human)


@command
def definitions(
    file: _Model,
    on: Annotated[str | None, typer.Option(metavar="O", help="The output; by default the only one.")] = None,
    printed: Annotated[
        bool,
        flag("--printed", "Read Definition 4 as printed: independent given the other points."),
    ] = False,
) -> Answer:
    """Say for which ε the mechanism at the end of a model meets each definition of differential privacy.

    The parents of the output are the data points; their population is the model's own. In JSON an infinite ε is the
    text "inf".

    Example: escudo definitions survey.sem
    """
    from escudo.causal import SEM
    from escudo.effects import definitions as all_definitions
    from escudo.effects import mechanism_of

    mechanism, population = mechanism_of(SEM.read(file), on)
    found = all_definitions(mechanism, population, independence="pairwise-conditional" if printed else "mutual")

    def human(console: Console) -> None:
        console.print(_definitions_table(found))
        console.print("\nIn words", style="bold")
        _print_sentences(console, found)
        console.print("\nWhich implies which, for all mechanisms, and what it means here", style="bold")
        for arrow in found.implications:
            console.print(f"  {arrow}", markup=False)

    return Answer({"file": str(file), **found.to_json()}, human)


def _single_effects(sem: SEM, asked: EffectsOptions) -> list[Effect]:
    """Return the effects that were asked for by name."""
    from escudo.effects import direct, effect, outputs_of, path, total

    of, held, through = _names(asked.of), _names(asked.direct), _names(asked.through)
    observed = _names(asked.on) or outputs_of(sem)
    if held and through:
        raise InputError("--direct and --through ask different questions; give one of them.")
    groups: list[tuple[str, ...]] = [of] if asked.joint else [(name,) for name in of]
    if held:
        return [direct(sem, group, observed, holding=held, population=asked.population) for group in groups]
    if through:
        return [path(sem, group, observed, through=through, population=asked.population) for group in groups]
    return [kind(sem, of, observed, population=asked.population) for kind in (effect, total)]


def _ledger_effects(url: str, dataset: str, asked: EffectsOptions) -> Answer:
    from escudo.effects import bound, from_ledger
    from escudo.privacy import Ledger

    people, report = asked.people, asked.report
    with Ledger(url) as book:
        terms = book.account(dataset).terms
        diagram = from_ledger(book, dataset, people=asked.people)
    releases = [name for name, node in diagram.nodes.items() if node.kind == "mechanism"]
    points = [name for name, node in diagram.nodes.items() if node.kind == "data point"]
    if not releases:
        raise InputError(f"nothing was released from dataset {dataset!r} yet.")
    who = "one person" if terms.unit == "person" else "one row"
    found = [(who, bound(diagram, "D1", releases, delta=terms.delta))]
    if people > 1:
        several = f"{people} people together" if terms.unit == "person" else f"{people} rows together"
        found.append((several, bound(diagram, points, releases, delta=terms.delta)))
        found.append(
            (f"an attribute behind {several.split(' together')[0]}", bound(diagram, "R", releases, delta=terms.delta))
        )
    words = f"Account {dataset!r}: {terms}."
    if report is not None:
        from escudo.report import ledger_page, write

        write(ledger_page(diagram, found, dataset=dataset, terms=words, delta=terms.delta), report)

    def human(console: Console) -> None:
        console.print(_bounds_table(found, len(releases)))
        console.print(words, markup=False)
        if report is not None:
            console.print(f"Report   {report}", markup=False)

    payload: dict[str, Any] = {
        "dataset": dataset,
        "terms": str(terms),
        "releases": len(releases),
        "effects": [{"changed": name, **one.to_json()} for name, one in found],
        "report": str(report) if report else None,
    }
    return Answer(payload, human)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


_NUMBER: dict[str, Any] = {"justify": "right", "no_wrap": True}
_WHOLE: dict[str, Any] = {"no_wrap": True}
_LONG: dict[str, Any] = {"overflow": "fold"}
_ASIDE: dict[str, Any] = {"overflow": "fold", "style": "dim"}


def _survey_table(found: Survey) -> Table:
    from rich.markup import escape

    from escudo.effects import show_epsilon

    def cells(row: SurveyRow) -> tuple[str, ...]:
        few, one = len(row.names) <= 6, row.effect
        names = ", ".join(row.names) if few else f"{row.names[0]} … {row.names[-1]} ({len(row.names)} in all)"
        return names, show_epsilon(one.epsilon), row.by_what, one.known, str(one.witness) if one.witness else "none"

    title = escape(f"effect on {', '.join(found.outputs)}")
    columns = {title: _LONG, "ε": _NUMBER, "by what": _LONG, "known": _WHOLE, "worst case": _ASIDE}
    return plain_table(columns, map(cells, found.rows))


def _together(one: Effect, all_: Effect) -> str:
    from escudo.effects import show_epsilon

    return (
        f"{' and '.join(one.of)} together   {show_epsilon(one.epsilon)} jointly, {show_epsilon(all_.epsilon)} in total"
    )


def _effects_table(found: Sequence[Effect]) -> Table:
    from escudo.effects import show_epsilon

    def kind(one: Effect) -> str:
        return "joint effect" if one.kind == "effect" and len(one.of) > 1 else one.kind

    return plain_table(
        {"changed": _LONG, "ε": _NUMBER, "what is asked": {}, "in words": _LONG},
        ((", ".join(one.of), show_epsilon(one.epsilon), kind(one), one.sentence) for one in found),
    )


def _bounds_table(found: Sequence[tuple[str, Effect]], releases: int) -> Table:
    from escudo.effects import show_epsilon

    title = f"effect on all {releases} releases" if releases > 1 else "effect on the release"
    return plain_table(
        {title: {}, "ε": _NUMBER, "δ": _WHOLE, "known": _WHOLE, "how": _ASIDE},
        (
            (name, f"≤ {show_epsilon(one.epsilon)}", f"{one.delta:g}", one.known, one.derivation[-1])
            for name, one in found
        ),
    )


def _definitions_table(found: Definitions) -> Table:
    from escudo.effects import show_epsilon

    labels = {number: one.name if number == "bayesian0" else f"{number}  {one.name}" for number, one in found.items()}
    return plain_table(
        {"definition": _LONG, "ε": _NUMBER, "compares": _WHOLE, "populations": _WHOLE, "in general": _WHOLE},
        (
            (labels[number], show_epsilon(one.epsilon), one.compares, one.populations, one.relation)
            for number, one in found.items()
        ),
    )


def _print_sentences(console: Console, found: Definitions) -> None:
    from rich.text import Text

    for number, one in found.items():
        label = "given" if number == "bayesian0" else str(number)
        text = Text(f"  {label:>5}  ", style="bold") + Text(one.sentence, style="default")
        if one.witness is not None and (number == 1 or one.witness != found[1].witness):
            text += Text(f" Worst case: {one.witness}.", style="dim")
        console.print(text)
