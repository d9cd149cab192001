"""``escudo what-if``: what setting a column does to another in a released model, also where directions are open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import Answer, console
from escudo.cli._options import command

if TYPE_CHECKING:
    from escudo.synthesis import EffectRange, Model

_NO_ARROW = (
    "No arrow leads from {treatment} to {outcome} in the model's graph, and that alone makes it nothing: a graph that "
    "was learnt may lack arrows that noise hid."
)


@command
def what_if(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model folder of a release.")],
    treatment: Annotated[str, typer.Argument(metavar="TREATMENT", help="The column that is set.")],
    outcome: Annotated[
        str, typer.Argument(metavar="OUTCOME", help="The column that responds; COLUMN=LEVEL for a share.")
    ],
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="CONTROL,TREATED",
            help="The values to compare; first and last by default, of bins a quarter in; numbers stand for theirs.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="How often an interval for noise and chance should hold the truth, such as 0.95: the generator is "
            "fitted again 40 times, to rows of the model. Without it there is none."
        ),
    ] = None,
) -> Answer:
    """Say what setting one column does to another in a released model; free, as often as wanted.

    Where the graph leaves open on which side of an edge the cause is, the answer is a range: the effect in each graph
    that it allows. What it leaves open otherwise is refused.

    Example: escudo what-if release/model smoke lung --confidence 0.95
    """
    from escudo._files import mark_of
    from escudo.errors import InputError
    from escudo.synthesis import holds_linked, load
    from escudo.table import MISSING_LABEL

    if holds_linked(model):
        raise InputError(
            "what-if is about a model of one table, and this one is of linked tables; draw rows with --do."
        )
    loaded = load(model)
    if mark := mark_of(loaded.guarantee):
        console(stderr=True).print(mark, markup=False, style="bold red")
    name, _, level = outcome.partition("=")
    found = _asked(loaded, treatment, name, confidence)
    first = found.effects[0]
    control, treated = _values(loaded, treatment, compare, first.levels)
    if not level and first.means is None:
        level = [one for one in first.outcome_levels if one != MISSING_LABEL][-1]
    change = _change(found, control, treated, level)
    payload = {**found.to_json(), "control": control, "treated": treated, "level": level or None, **change}
    told = f"the share of {name} = {level}" if level else f"the mean of {name}"
    words = _words(treatment, control, treated, told, change, confidence)
    if len(found.effects) == 1 and name not in loaded.graph.descendants([treatment]):
        words += f"\n{_NO_ARROW.format(treatment=treatment, outcome=name)}"
    return Answer(payload, f"{found}\n{words}")


def _asked(model: Model, treatment: str, outcome: str, confidence: float | None) -> EffectRange:
    """Return what a model says; only one that adds up its laws has readings, and is fitted again for intervals."""
    from escudo.errors import InputError
    from escudo.synthesis import CausalModel, EffectRange, LinearModel

    if isinstance(model, CausalModel):
        return model.effect_range(treatment, outcome, confidence=confidence)
    if not isinstance(model, LinearModel):
        raise InputError(
            f"A model of the generator {model.generator} is drawn from and not added up; compare rows of escudo sample "
            f"with --do {treatment}=VALUE."
        )
    if confidence is not None:
        raise InputError(f"A model of the generator {model.generator} has no intervals; leave out --confidence.")
    return EffectRange(effects=(model.effect(treatment, outcome),), causes=(model.graph.parents(treatment),))


def _values(model: Model, treatment: str, compare: str | None, levels: tuple[str, ...]) -> tuple[str, str]:
    """Return the two values to compare, as the model calls them: a number or a day is in one of its bins."""
    from escudo.errors import InputError
    from escudo.synthesis import CausalModel, cell_of
    from escudo.table import Numeric

    column = model.schema.columns[treatment]
    if compare is None:  # the outermost bins are often empty, as for escudo effect
        inwards = len(levels) // 4 if isinstance(column, Numeric) and len(levels) > 3 else 0
        return levels[inwards], levels[-1 - inwards]
    control, *treated = (part.strip() for part in compare.split(","))
    if len(treated) != 1:
        raise InputError(f"--compare takes two values, CONTROL,TREATED; got {compare!r}.")
    if not isinstance(model, CausalModel) or not isinstance(column, Numeric):
        return control, treated[0]
    first, second = (levels[cell_of(column, "--compare", value)] for value in (control, treated[0]))
    return first, second


def _change(found: EffectRange, control: str, treated: str, level: str) -> dict[str, Any]:
    """Return the change from one value to the other: of each reading, from least to most, and with noise and chance."""
    from escudo.errors import InputError

    changes = []
    for effect in found.effects:
        shifts = effect.shifts(treated, control) if level else {"": effect.difference(treated, control)}
        if level not in shifts:
            raise InputError(f"{level!r} is no level of {effect.outcome!r}; it has {', '.join(shifts)}.")
        changes.append(shifts[level])
    interval = None if found.confidence is None else list(found.interval(treated, control, level or None))
    return {"changes": changes, "range": [min(changes), max(changes)], "interval": interval}


def _words(
    treatment: str, control: str, treated: str, what: str, change: dict[str, Any], confidence: float | None
) -> str:
    low, high = change["range"]
    readings = len(change["changes"])
    by = f"{low:+.3g}" if readings == 1 else f"{low:+.3g} to {high:+.3g}, over {readings} readings of the graph"
    said = f"Setting {treatment} from {control} to {treated} changes {what} by {by}."
    if confidence is None:
        return said
    start, end = change["interval"]
    return f"{said}\nWith noise and chance it lies between {start:+.3g} and {end:+.3g} ({confidence:.0%} interval)."
