"""``escudo audit`` and ``escudo museum``: does a mechanism keep its promise? A randomised experiment says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import Answer, Filed, flag, plain_table
from escudo.cli._options import RelationName, command
from escudo.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from escudo.auditing import Audit, SuiteResult
    from escudo.auditing.museum import Finding
    from escudo.privacy import Guarantee
    from escudo.table import Schema

_VIOLATED = 5

Progress = Callable[[int, float, float | None], None]


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What ``escudo audit`` is told."""

    mechanism: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:FUNCTION", help="What to audit, called as function(dataset, rng); or a suite, FILE.toml."
        ),
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
        list[str] | None,
        typer.Option(
            metavar="NAME: VALUE",
            help="With --url: a header to send; 'env:VARIABLE' as its value is read from the environment; repeatable.",
        ),
    ] = None
    rate: Annotated[float | None, typer.Option(help="With --url: the most calls a second.")] = None
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="With --url: for one whole call; 30 by default.")
    ] = None
    largest_answer: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="With --url: read so much of an answer; 1 MB by default.")
    ] = None
    workers: Annotated[int, typer.Option(min=1, help="Calls that are made at a time, for slow services.")] = 1
    memoryless: Annotated[
        bool,
        flag("--memoryless", "It keeps nothing between calls, so that equal answers count each time."),
    ] = False
    run_on: Annotated[
        bool,
        flag("--run-on", "Use all runs, also once the claim is rejected: how bad is it, at which δ?"),
    ] = False
    confidence: Annotated[
        float | None, typer.Option(help="Of everything the audit says; 0.95, or what a suite says.", show_default=False)
    ] = None
    max_runs: Annotated[int | None, typer.Option(min=1, help="The most runs of the mechanism.")] = None
    seed: Annotated[int | None, typer.Option(help="Repeat an audit exactly.")] = None
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the record of the experiment, of a suite in a folder; resumes if it is there."
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--report", "-r", "--out", "-o", metavar="FILE", help="Write a page with the verdict."),
    ] = None
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With a suite: write its findings as JUnit XML.")
    ] = None


@command
def audit(asked: AuditOptions) -> Filed:
    """Measure a mechanism's ε by a randomised experiment, and say whether it breaks its claim.

    Ends with code 5 if it does. An audit can show that a claim is false, and never that it is true. Without --pairs and
    --schema the inputs are short lists of zeros and ones. A suite is a TOML file of many audits with one error.

    Example: escudo audit mylib.mechanisms:noisy_count --epsilon 1 --schema visits.toml --report audit.html

    Example: escudo audit suite.toml --report audits.html --junit audits.xml
    """
    from escudo.report import audit_page, check_page, write

    if asked.out is not None:
        check_page(asked.out)
    if asked.mechanism is not None and asked.mechanism.endswith(".toml"):
        return _suite(asked)
    if asked.junit is not None:
        raise InputError("--junit goes with a suite: escudo audit suite.toml --junit FILE.")
    if asked.pairs is not None and asked.schema is not None:
        raise InputError("give --pairs or --schema, not both.")
    from escudo.table import Schema

    claim = _claim(asked, schema := None if asked.schema is None else Schema.read(asked.schema))
    with _no_way_out(asked.mechanism or ""):
        target, name = _target(asked)
    from escudo.auditing import audit as run
    from escudo.auditing import pairs_in, plain_pairs

    confidence = 0.95 if asked.confidence is None else asked.confidence
    options: dict[str, Any] = {} if asked.max_runs is None else {"max_runs": asked.max_runs}
    if schema is not None:
        options["schema"] = schema
    else:
        options["pairs"] = plain_pairs(claim.relation) if asked.pairs is None else pairs_in(asked.pairs)
    with _no_way_out(name), _live(confidence) as show:
        found = run(
            target,
            claim=claim,
            confidence=confidence,
            stop_early=not asked.run_on,
            memoryless=asked.memoryless,
            workers=asked.workers,
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
    listing: Annotated[bool, flag("--list", "Show what there is, without auditing it.")] = False,
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


def _suite(asked: AuditOptions) -> Filed:
    """Run the audits of a file, and say what each found."""
    from escudo._files import write_whole
    from escudo.auditing import Suite
    from escudo.report import suite_page, write

    assert asked.mechanism is not None
    own = (
        asked.epsilon,
        asked.rho,
        asked.mu,
        asked.schema,
        asked.pairs,
        asked.url,
        asked.header,
        asked.rate,
    )
    if any(one is not None for one in own) or asked.run_on or asked.memoryless:
        raise InputError(
            "a suite says itself what is claimed and how it is asked; only --confidence, --max-runs, --seed, "
            "--workers, --log, --report and --junit go with it."
        )
    workers = None if asked.workers == 1 else asked.workers
    changed = {"max_runs": asked.max_runs, "seed": asked.seed, "workers": workers}
    suite = Suite.read(asked.mechanism, confidence=asked.confidence, **changed)
    found = suite.run(log=asked.log)

    def tell(written: bool) -> Answer:
        page = asked.out if written else None
        payload = {**found.to_json(), "report": None if page is None else str(page)}
        ending: Exception | None = typer.Exit(_VIOLATED) if found.violated else None
        if ending is None and found.count("error"):
            ending = InputError(f"{found.verdict} See above which, and why.")
        return Answer(payload, lambda console: _print_suite(console, found, page), ending)

    def write_files() -> None:
        if asked.out is not None:
            write(suite_page(found, source=str(asked.mechanism)), asked.out)
        if asked.junit is not None:
            write_whole(asked.junit, found.to_junit().encode())

    return Filed(tell, write_files)


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


def _claim(asked: AuditOptions, schema: Schema | None) -> Guarantee:
    from escudo.auditing import claim_of

    said = {"epsilon": asked.epsilon, "rho": asked.rho, "mu": asked.mu}
    if (given := sum(value is not None for value in said.values())) != 1:
        raise InputError(f"say what is claimed with one of --epsilon, --rho and --mu; got {given} of them.")
    return claim_of({**said, "delta": asked.delta, "relation": asked.relation}, schema)


def _target(asked: AuditOptions) -> tuple[Any, str]:
    """Return what to audit, and its name."""
    if (asked.mechanism is None) == (asked.url is None):
        raise InputError("name what to audit: MODULE:FUNCTION, or --url for a service, but not both.")
    told = {"calls_per_second": asked.rate, "timeout": asked.timeout, "largest_answer": asked.largest_answer}
    limits: dict[str, Any] = {name: one for name, one in told.items() if one is not None}
    if asked.mechanism is not None:
        if asked.header or limits:
            raise InputError("--header, --rate, --timeout and --largest-answer go with --url.")
        from escudo.auditing import mechanism_named

        return mechanism_named(asked.mechanism), asked.mechanism
    from escudo.auditing import HttpTarget, headers_of

    assert asked.url is not None
    pieces = [text.partition(":") for text in asked.header or []]
    if any(not colon for _, colon, _ in pieces):
        raise InputError("--header takes 'Name: value'.")
    sent = headers_of({key.strip(): value.strip() for key, _, value in pieces})
    return HttpTarget(asked.url, headers=sent, **limits), asked.url.partition("?")[0]  # a key may follow


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
    if found.curve:
        shown = ", ".join(f"{epsilon:.2f} at δ = {delta:g}" for delta, epsilon in found.curve)
        lines.append(("how bad", f"ε ≥ {shown} (all at once with {100 * found.confidence:.4g} % confidence)"))
    if found.plausible is not None:
        lines.append(("plausible", f"ε up to {found.plausible:.2f} on that event; no guarantee, others may show more"))
    lines += [("note", note) for note in found.notes]
    seed = f", seed {found.seed}" if found.seed is not None else ""
    lines.append(("took", f"{found.runs:,} runs, {found.seconds:.1f} s{seed}"))
    if out is not None:
        lines.append(("report", str(out)))
    for label, text in lines:
        console.print(Text(f"  {label:<16}", style="dim") + Text(text))


def _print_suite(console: Console, found: SuiteResult, out: Path | None) -> None:
    from rich.text import Text

    styles = {
        "violated": ("VIOLATED", "bold red"),
        "error": ("error", "bold yellow"),
        "passed": ("no violation", "green"),
    }
    for entry in found.entries:
        console.print(Text(f"{entry.name}: ") + Text(*styles[entry.outcome]))
        for line in entry.lines if entry.outcome != "passed" else entry.lines[:1]:
            console.print(Text(f"  {line}"))
    console.print(Text(found.verdict, "bold"))
    if out is not None:
        console.print(Text(f"  {'report':<16}", style="dim") + Text(str(out)))


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
