"""``escudo audit`` and ``escudo museum``: does a mechanism keep its promise? A randomised experiment says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import Answer, Filed, plain_table
from escudo.cli._options import RelationName, command
from escudo.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from escudo.auditing import Audit
    from escudo.auditing.museum import Finding
    from escudo.privacy import Guarantee

_VIOLATED = 5

Progress = Callable[[int, float, float | None], None]


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What ``escudo audit`` is told."""

    mechanism: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:FUNCTION", help="What to audit, called as function(dataset, rng)."),
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="The claim: ε.")] = None
    delta: Annotated[float, typer.Option(help="The claim: δ, with --epsilon.")] = 0.0
    rho: Annotated[float | None, typer.Option(help="The claim: ρ of zero-concentrated privacy.")] = None
    mu: Annotated[float | None, typer.Option(help="The claim: μ of Gaussian privacy.")] = None
    relation: RelationName = "replace_one"
    schema: Annotated[Path | None, typer.Option(metavar="FILE", help="Make input pairs for tables of this schema.")] = (
        None
    )
    pairs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Input pairs as JSON: a list of pairs, dataset and neighbour.")
    ] = None
    url: Annotated[str | None, typer.Option(help="Audit a service instead: POST {'dataset': ...} to this.")] = None
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME: VALUE", help="With --url: a header to send; repeatable.")
    ] = None
    rate: Annotated[float | None, typer.Option(help="With --url: the most calls a second.")] = None
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="With --url: for one whole call; 30 by default.")
    ] = None
    largest_answer: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="With --url: read so much of an answer; 1 MB by default.")
    ] = None
    confidence: Annotated[float, typer.Option(help="Of everything the audit says.")] = 0.95
    max_runs: Annotated[int | None, typer.Option(min=1, help="The most runs of the mechanism.")] = None
    seed: Annotated[int | None, typer.Option(help="Repeat an audit exactly.")] = None
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the record of the experiment; resumes if it is there.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--report", "-r", "--out", "-o", metavar="FILE", help="Write a page with the verdict."),
    ] = None


@command
def audit(asked: AuditOptions) -> Filed:
    """Measure a mechanism's ε by a randomised experiment, and say whether it breaks its claim.

    Ends with code 5 if it does. An audit can show that a claim is false, and never that it is true. Without --pairs and
    --schema the inputs are short lists of zeros and ones.

    Example: escudo audit mylib.mechanisms:noisy_count --epsilon 1 --schema visits.toml --report audit.html
    """
    from escudo.report import audit_page, check_page, write

    if asked.out is not None:
        check_page(asked.out)
    claim = _claim(asked)
    with _no_way_out(asked.mechanism or ""):
        target, name = _target(asked)
    if asked.pairs is not None and asked.schema is not None:
        raise InputError("give --pairs or --schema, not both.")
    given = (
        _pairs(asked.pairs)
        if asked.pairs is not None
        else _plain_pairs(claim.relation)
        if asked.schema is None
        else None
    )
    from escudo.auditing import audit as run

    options: dict[str, Any] = {} if asked.max_runs is None else {"max_runs": asked.max_runs}
    if asked.schema is not None:
        from escudo.table import Schema

        options["schema"] = Schema.read(asked.schema)
    with _no_way_out(name), _live(asked.confidence) as show:
        found = run(
            target,
            claim=claim,
            pairs=given,
            confidence=asked.confidence,
            seed=asked.seed,
            log=asked.log,
            progress=False,
            on_progress=show,
            **options,
        )
    said = [note for note in getattr(target, "notes", ()) if note not in found.notes]  # what a service cost
    if asked.pairs is None and asked.schema is None:
        said.append("Inputs were lists of zeros and ones; --pairs or --schema tries those that your data can be.")
    found = replace(found, notes=(*found.notes, *said))

    def tell(written: bool) -> Answer:
        page = asked.out if written else None
        payload = {"mechanism": name, **found.to_json(), "report": None if page is None else str(page)}
        return Answer(payload, lambda console: _print_audit(console, found, page), _ending(found))

    def write_page() -> None:
        if asked.out is not None:
            write(audit_page(found, mechanism=name), asked.out)

    return Filed(tell, write_page)


@command
def museum(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Exhibits; all by default.")] = None,
    listing: Annotated[
        bool, typer.Option("--list", metavar="", help="Show what there is, without auditing it.")
    ] = False,
    confidence: Annotated[float, typer.Option(help="That no correct mechanism is accused, over all of them.")] = 0.95,
    seed: Annotated[int | None, typer.Option(help="Repeat a visit exactly.")] = None,
) -> Answer:
    """Audit the museum of broken mechanisms: each must be caught, and its correct twin left alone.

    Ends with code 5 if anything comes out otherwise. In JSON an infinite ε is the text "inf".
    """
    from escudo.auditing.museum import exhibit, exhibits, visit

    shown = tuple(exhibit(name) for name in names) if names else exhibits()
    if listing:
        rows = [
            {"name": one.name, "bug": one.bug, "source": one.source, "claim": _short_claim(one.claim)} for one in shown
        ]
        return Answer({"exhibits": rows}, lambda console: _print_listing(console, rows))
    found = visit(shown, confidence=confidence, seed=seed)
    unexpected = [one for one in found if not one.as_expected]
    payload = {
        "findings": [one.to_json() for one in found],
        "unexpected": len(unexpected),
        "seconds": sum(one.audit.seconds for one in found),
        "confidence": confidence,
    }
    ending = typer.Exit(_VIOLATED) if unexpected else None
    return Answer(payload, lambda console: _print_museum(console, found), ending)


def _ending(found: Audit) -> Exception | None:
    """Return how an audit ends: if no run gave an answer, that nothing was found is no finding, and an error."""
    if found.violated:
        return typer.Exit(_VIOLATED)
    if not found.nothing_audited:
        return None
    return InputError(
        f"{found.verdict} See the notes above. A mechanism is called as function(dataset, rng); --pairs and --schema "
        "say what its datasets are."
    )


def _claim(asked: AuditOptions) -> Guarantee:
    from escudo.privacy import Guarantee

    said = {"epsilon": asked.epsilon, "rho": asked.rho, "mu": asked.mu}
    if (given := sum(value is not None for value in said.values())) != 1:
        raise InputError(f"say what is claimed with one of --epsilon, --rho and --mu; got {given} of them.")
    return Guarantee(**said, delta=asked.delta, relation=asked.relation)  # type: ignore[arg-type]


def _target(asked: AuditOptions) -> tuple[Any, str]:
    """Return what to audit, and its name."""
    if (asked.mechanism is None) == (asked.url is None):
        raise InputError("name what to audit: MODULE:FUNCTION, or --url for a service, but not both.")
    told = {"calls_per_second": asked.rate, "timeout": asked.timeout, "largest_answer": asked.largest_answer}
    limits: dict[str, Any] = {name: one for name, one in told.items() if one is not None}
    if asked.mechanism is not None:
        if asked.header or limits:
            raise InputError("--header, --rate, --timeout and --largest-answer go with --url.")
        return _loaded(asked.mechanism), asked.mechanism
    from escudo.auditing import HttpTarget

    assert asked.url is not None
    pieces = [text.partition(":") for text in asked.header or []]
    if any(not colon for _, colon, _ in pieces):
        raise InputError("--header takes 'Name: value'.")
    sent = {key.strip(): value.strip() for key, _, value in pieces}
    return HttpTarget(asked.url, headers=sent, **limits), asked.url.partition("?")[0]  # a key may follow


def _loaded(name: str) -> Any:
    """Return what ``module:function`` or ``file.py:function`` names; a class is made without arguments."""
    import importlib
    import importlib.util
    import sys

    where, colon, what = name.rpartition(":")
    if not colon or not where or not what:
        raise InputError(
            f"{name!r} must be MODULE:FUNCTION, such as mylib.mechanisms:noisy_count or audit_me.py:count."
        )
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            if spec is None or spec.loader is None or not Path(where).exists():
                raise InputError(f"there is no file {where!r}.")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, "")
            module = importlib.import_module(where)
    except ImportError as error:
        raise InputError(f"cannot import {where!r}: {error}.") from error
    except InputError:
        raise
    except Exception as error:  # whatever the user's own file does
        raise InputError(
            f"importing {where!r} failed with a {type(error).__name__}; run the command again as 'escudo --debug ...' "
            "to see where."
        ) from error
    found: Any = module
    for part in what.split("."):
        if not hasattr(found, part):
            from escudo._validate import did_you_mean

            raise InputError(f"{where!r} has no {what!r}.{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        raise InputError(f"{what!r} is a class that cannot be made without arguments; name a function.") from error


def _pairs(path: Path) -> list[tuple[Any, Any, str]]:
    import json

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path.name!r}: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(f"{path.name!r} is not JSON: {error}.") from error
    if not isinstance(data, list) or not data or any(not isinstance(one, list) or len(one) != 2 for one in data):
        raise InputError(f"{path.name!r} must hold a list of pairs, such as [[[0, 0], [0, 1]], [[1, 1], [1, 0]]].")
    return [(first, second, f"{_cut(str(first))} against {_cut(str(second))}") for first, second in data]


def _plain_pairs(relation: str) -> list[tuple[Any, Any, str]]:
    """Return short lists of zeros and ones, for mechanisms that take a list of numbers."""
    if relation == "replace_one":
        lists = [([0, 0, 0], [0, 0, 1]), ([1, 1, 1], [1, 1, 0]), ([0, 1, 1], [1, 1, 1])]
    else:
        lists = [([0, 0], [0, 0, 1]), ([1, 1], [1, 1, 0]), ([1], [1, 1])]
    return [(first, second, f"{first} against {second}") for first, second in lists]


@contextmanager
def _no_way_out(name: str) -> Iterator[None]:
    """Turn ``sys.exit`` in somebody's mechanism into an error: its exit code would pass for the audit's."""
    try:
        yield
    except SystemExit:
        raise InputError(f"{name!r} ended the program (sys.exit), so nothing was tested.") from None


@contextmanager
def _live(confidence: float) -> Iterator[Progress | None]:
    """Show runs, the bound so far and what is left to do, in a terminal; nothing when piped."""
    import sys

    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("Randomised trials {task.fields[said]}"), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None, said="0")

        def show(runs: int, epsilon_lower: float, to_decide: float | None) -> None:
            said = f"{runs:,}   ε ≥ {epsilon_lower:.2f} ({100 * confidence:.4g} %, valid at any time)"
            if to_decide is not None and 0 < to_decide < 1e12:
                said += f"   about {to_decide:,.0f} more to decide"
            bars.update(task, said=said)

        yield show


def _print_audit(console: Console, found: Audit, out: Path | None) -> None:
    from rich.text import Text

    lead, rest = found.verdict.split(":", 1) if found.violated else ("", found.verdict)
    style = "bold red" if found.violated else "bold"
    console.print(Text(f"{lead}:", style) + Text(rest) if lead else Text(rest, style))
    lines = _witness_lines(found)
    lines.append(
        ("second opinion", f"split-sample Clopper-Pearson, for a fixed number of runs: ε ≥ {found.clopper_pearson:.2f}")
    )
    lines += [("note", note) for note in found.notes]
    seed = f", seed {found.seed}" if found.seed is not None else ""
    lines.append(("took", f"{found.runs:,} runs, {found.seconds:.1f} s{seed}"))
    if out is not None:
        lines.append(("report", str(out)))
    for label, text in lines:
        console.print(Text(f"  {label:<16}", style="dim") + Text(text))


def _witness_lines(found: Audit) -> list[tuple[str, str]]:
    witness = found.witness
    if witness is None:
        return []
    first, second = (", ".join(str(value) for value in side.values()) for side in (witness.x1, witness.x2))
    event = ", ".join(str(value) for value in witness.y.values())
    lines = [("inputs", f"{_cut(first)}  against  {_cut(second)}"), ("event", event)]
    if witness.probabilities is not None:
        one, other = witness.probabilities
        times = f", {one / other:.3g} times as often" if other > 0 else ", never under the second"
        lines.append(("happened", f"in {100 * one:.3g} % of runs against {100 * other:.3g} %{times}"))
    return lines


def _cut(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _short_claim(claim: Guarantee) -> str:
    if claim.epsilon is not None:
        return f"ε = {claim.epsilon:g}" + (f", δ = {claim.delta:g}" if claim.delta else "")
    if claim.rho is not None:
        return f"ρ = {claim.rho:.3g}"
    return f"μ = {claim.mu:.3g}" if claim.mu is not None else "a curve"


def _print_listing(console: Console, rows: list[dict[str, str]]) -> None:
    titles = ("exhibit", "claim", "what is wrong", "source")
    console.print(_table(titles, ((row[key] for key in ("name", "claim", "bug", "source")) for row in rows)))


def _print_museum(console: Console, found: list[Finding]) -> None:
    from rich.text import Text

    from escudo.effects import show_epsilon

    def cells(one: Finding) -> tuple[str | Text, ...]:
        piece, result = one.piece, one.audit
        at = f" at δ = {piece.delta:g}" if piece.delta else ""
        said = {
            (True, True): ("caught", "green"),
            (True, False): ("MISSED", "bold red"),
            (False, False): ("left alone", "green"),
            (False, True): ("ACCUSED", "bold red"),
        }[one.broken, result.violated]
        return (
            Text(one.exhibit.name if one.broken else "  its twin", style="" if one.broken else "dim"),
            _short_claim(piece.claim),
            f"{show_epsilon(piece.true_epsilon)}{at}",
            f"{result.epsilon_lower:.3g}",
            f"{result.runs:,}",
            f"{result.seconds:.1f}",
            Text(*said),
            piece.bug if one.broken else "",
        )

    titles = ("exhibit", "claim", "true ε", "ε ≥", "runs", "s", "verdict", "what is wrong")
    console.print(_table(titles, map(cells, found)))
    caught = sum(one.broken and one.audit.violated for one in found)
    accused = sum(not one.broken and one.audit.violated for one in found)
    total = sum(one.audit.seconds for one in found)
    half = len(found) // 2
    console.print(
        f"{caught} of {half} broken mechanisms caught, {accused} of {half} correct twins accused; {total:.0f} s."
    )


def _table(titles: tuple[str, ...], rows: Iterable[Iterable[str | Text]]) -> Table:
    numbers = ("true ε", "ε ≥", "runs", "s")
    return plain_table(
        {
            title: {"justify": "right" if title in numbers else "left", "no_wrap": title in ("exhibit", *numbers)}
            for title in titles
        },
        rows,
    )
