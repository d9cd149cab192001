"""Questions beside those to a private table: mechanisms, effects, audits, attacks, formats, ledgers, pages, errors."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import click
import numpy as np
import polars as pl
import typer

import escudo
from escudo import attacks, auditing, effects, mechanisms, privacy, report, synthesis, table, utility
from escudo.auditing import museum
from escudo.causal import SEM, CausalGraph, asia, draw, formats
from escudo.cli import app, main
from golden.seen import Seen, see
from golden.tables import rows_of
from neighbours.tables import ENGINES, NUMBERS, columns_of, graph_of, schema_of

MODELS = Path(__file__).parents[2] / "examples"
SEED = 11
Ask = Callable[[Path], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with a name of its own."""

    name: str
    ask: Ask
    slow: bool = False
    engines: tuple[str, ...] = ("",)

    def see(self, engine: str | None = None) -> Seen:
        """Ask."""
        return see(self.ask)


def questions() -> Iterator[Question]:
    """Yield every question."""
    parts = {
        "mechanism": _mechanisms(),
        "account": _accounts(),
        "effects": _effects(),
        "graph": _graphs(),
        "model": _models(),
        "schema": _schemas(),
        "ledger": _ledgers(),
        "audit": _audits(),
        "attack": _attacks(),
        "command": _commands(),
        "help": _helps(),
        "mistake": _mistakes(),
    }
    for part, asks in parts.items():
        for name, ask in asks.items():
            yield Question(name=f"{part}: {name}", ask=ask)


def _frame(content: Any = "mixed", unit: Any = "row", count: int = 400) -> pl.DataFrame:
    frame: pl.DataFrame = ENGINES["polars"].frame(rows_of(content, unit, count), columns_of(content))
    return frame


def _command(line: str, folder: Path) -> Any:
    """Run a command in the folder, and return its exit code."""
    before, code = os.getcwd(), None
    os.chdir(folder)
    try:
        with mock.patch.object(sys, "argv", ["escudo", *shlex.split(line)]):
            main()
    except SystemExit as stopped:
        code = stopped.code
    finally:
        os.chdir(before)
    return {"exit": code}


# ---- the private core


def _mechanisms() -> dict[str, Ask]:
    values, counts = [3.25, -1.5, 12.0], {"no": 240, "yes": 155, "seldom": 2}

    def called(name: str, *values: Any, **terms: Any) -> Ask:
        def ask(folder: Path) -> Any:
            account = privacy.MemoryAccount(relation=terms.get("relation", "replace_one"))
            release = getattr(mechanisms, name)(*values, account=account, seed=SEED, **terms)
            return release.value, release.guarantee, str(release), repr(release), account.receipts

        return ask

    numbers = np.random.default_rng(3).normal(50, 15, 300).clip(0, 100)
    return {
        "laplace of whole numbers": called("laplace", [3, -1, 12], sensitivity=1, epsilon=1.0),
        "laplace of floats": called("laplace", values, sensitivity=2.0, epsilon=0.7),
        "laplace by its scale": called("laplace", values, sensitivity=1.0, scale=3.0, relation="add_remove"),
        "gaussian": called("gaussian", values, l2_sensitivity=1.0, rho=0.1),
        "gaussian of counts": called("gaussian", [3, 4, 900], l2_sensitivity=2**0.5, scale=5.0, changed_cells=2),
        "exponential": called("exponential", [1.0, 5.0, 4.5], sensitivity=1.0, epsilon=1.0),
        "permute and flip": called("permute_and_flip", [1.0, 5.0, 4.5], sensitivity=1.0, epsilon=1.0),
        "gap sign": called("gap_sign", 0.7, sensitivity=0.1, epsilon=1.0),
        "votes": called("votes", [1, 1, -1, 1, 1, 1, -1], epsilon=1.0),
        "quantiles": called("quantiles", numbers, (0.1, 0.5, 0.9), lower=0, upper=100, epsilon=1.0),
        "quantile cells": called("quantile_cells", [4, 90, 200, 30], (0.25, 0.75), epsilon=1.0),
        "log iqr": called("log_iqr", [numbers], lower=0.0, upper=100.0, epsilon=2.0, delta=1e-6),
        "propose, test, release": called("propose_test_release", 4.5, 60, sensitivity=0.1, epsilon=1.0, delta=1e-6),
        "stable histogram": called("stable_histogram", counts, epsilon=1.0, delta=1e-6),
        "stable threshold": lambda folder: mechanisms.stable_threshold(epsilon=1.0, delta=1e-6),
        "second moments": lambda folder: mechanisms.second_moments([numbers[:30].reshape(10, 3).round()], 3),
    }


EVENTS: dict[str, privacy.Event] = {
    "pure": privacy.PureEvent(epsilon=0.5),
    "approximate": privacy.ApproximateEvent(epsilon=0.5, delta=1e-7),
    "laplace": privacy.LaplaceEvent(l1_sensitivity=1.0, scale=2.0, grid=1.0, dimensions=3),
    "gaussian": privacy.GaussianEvent(l2_sensitivity=2**0.5, scale=4.0, grid=1.0, changed_cells=2),
    "exponential": privacy.ExponentialEvent(epsilon=0.5),
    "sampled": privacy.SampledGaussianEvent(noise_multiplier=1.1, sampling_probability=0.01),
    "zcdp": privacy.ZCDPEvent(rho=0.02),
    "gdp": privacy.GDPEvent(mu=0.4),
}


def _accounts() -> dict[str, Ask]:
    def told(event: privacy.Event) -> Ask:
        def ask(folder: Path) -> Any:
            one = privacy.guarantee_of(event, delta=1e-6)
            many = privacy.guarantee_of([event] * 3 + [EVENTS["pure"]], delta=1e-6)
            return one, many, str(one), str(many), one._repr_html_(), {"event": event.to_json()}

        return ask

    def converted(folder: Path) -> Any:
        return {
            "zcdp": [privacy.zcdp_to_epsilon(0.1, 1e-6), privacy.zcdp_to_delta(0.1, 2.0), privacy.pure_to_zcdp(1.0)],
            "gdp": [privacy.gdp_to_epsilon(0.5, 1e-6), privacy.gdp_to_delta(0.5, 1.0), privacy.pure_to_gdp(1.0)],
            "groups": [privacy.pure_for_group(1.0, 3), privacy.zcdp_for_group(0.1, 3), privacy.gdp_for_group(0.5, 3)],
            "approximate group": privacy.approximate_for_group(1.0, 1e-8, 3),
        }

    def calibrated(folder: Path) -> Any:
        def build(scale: float) -> privacy.Event:
            return privacy.GaussianEvent(l2_sensitivity=1.0, scale=scale, grid=1.0)

        return {"scale": privacy.calibrate(build, privacy.Budget(1.0, 1e-6))}

    def planned(folder: Path) -> Any:
        private = table.PrivateTable(_frame(), schema_of("mixed", "row"))
        plan = privacy.plan(escudo.synthesize, private, graph_of("mixed"), epsilon=1.0, delta=1e-6)
        return plan, str(plan), plan._repr_html_()

    return {
        **{f"guarantee of {name} events": told(event) for name, event in EVENTS.items()},
        "conversions": converted,
        "calibration": calibrated,
        "plan": planned,
    }


# ---- the causal core


def _effects() -> dict[str, Ask]:
    def surveyed(file: Path) -> Ask:
        def ask(folder: Path) -> Any:
            sem = SEM.read(file)
            found = effects.survey(sem)
            return found, str(found), report.effects_page(sem, found=found, source=file.name, text=sem.to_text())

        return ask

    def defined(file: Path) -> Ask:
        def ask(folder: Path) -> Any:
            found = effects.definitions(*effects.mechanism_of(SEM.read(file)))
            return found, str(found)

        return ask

    def sequence(folder: Path) -> Any:
        sem = SEM.read(MODELS / "sequence.sem")
        diagram = effects.Diagram().point("X").mechanism("Y", reads=["X"], epsilon=math.log(2))
        diagram = diagram.mechanism("Z", reads=["X"], epsilon=math.log(3), chosen_by=["Y"])
        found = [effects.bound(diagram, of="X", on=["Y", "Z"]), effects.effect(sem, of="X", on=["Y", "Z"])]
        return found, "\n".join(map(str, found)), str(diagram)

    def groups(folder: Path) -> Any:
        diagram = effects.Diagram().point("D1").point("D2")
        diagram = diagram.mechanism("O", reads=["D1", "D2"], guarantee=EVENTS["gaussian"]).post("head", reads=["O"])
        diagram = diagram.partition("regions", reads=["D1"], epsilons={"north": 1.0, "south": 0.5})
        found = [
            effects.bound(diagram, of=["D1", "D2"], on="head", delta=1e-6),
            effects.bound(diagram, of="D1", on=["north", "south"]),
        ]
        return found, "\n".join(map(str, found))

    def kinds(folder: Path) -> Any:
        sem = SEM.read(MODELS / "ada_and_byron.sem")
        people, output = list(sem.exogenous)[:2], sem.endogenous[-1]
        inner = next(name for name in sem.endogenous if name != output)
        found = {
            "effect": effects.effect(sem, people[0], output),
            "associative": effects.associative(sem, people[0], output),
            "joint": effects.joint(sem, people, output),
            "total": effects.total(sem, people, output),
            "path": effects.path(sem, people[0], output, through=inner),
            "direct": effects.direct(sem, people[0], output, holding=inner),
        }
        return found, "\n".join(map(str, found.values())), "".join(one._repr_html_() for one in found.values())

    def knowledge(folder: Path) -> Any:
        mechanism, population = effects.mechanism_of(SEM.read(MODELS / "ada_and_byron.sem"))
        worst = effects.semantic_privacy(mechanism)
        return worst, str(worst), effects.nondisclosure(mechanism, population, about="D1")

    def answered(folder: Path) -> Any:
        sem = SEM.read(MODELS / "social_network.sem")
        first, last = sem.variables[0], sem.variables[-1]
        drawn = sem.sample(50, seed=SEED)
        return {"law": sem.probability(last), "do": sem.probability(last, do={first: sem.range(first)[0]})}, drawn

    files = sorted(MODELS.glob("*.sem"))
    quick = [file for file in files if file.stem not in ("thousand_people",)]
    return {
        **{f"survey of {file.stem}": surveyed(file) for file in quick},
        **{f"definitions of {file.stem}": defined(file) for file in quick},
        "a sequence": sequence,
        "groups and partitions": groups,
        "kinds of effects": kinds,
        "knowledge": knowledge,
        "laws and samples": answered,
    }


def _graph() -> CausalGraph:
    return CausalGraph.from_edges(
        [("smoke", "lung"), ("age", "stage"), ("stage", "lung"), ("hidden", "smoke"), ("hidden", "lung")],
        nodes=["alone"],
        latents=["hidden"],
        exposures=["smoke"],
        outcomes=["lung"],
        forbidden=[("lung", "age")],
    )


def _graphs() -> dict[str, Ask]:
    def round_trip(name: Any) -> Ask:
        def ask(folder: Path) -> Any:
            text = _graph().to_text(name, lossy=True)
            again = CausalGraph.parse(text, name)
            return text, again, str(again)

        return ask

    def drawn(folder: Path) -> Any:
        return draw(_graph()), draw(graph_of("numbers"), direction="right", title="Three"), _graph().to_svg()

    def asked(folder: Path) -> Any:
        graph = graph_of("mixed")
        return {
            "cpdag": graph.cpdag(),
            "moral": graph.moral(),
            "do": graph.do("stage"),
            "separated": graph.d_separated("smoke", "age"),
            "given": graph.d_separated("smoke", "age", "lung"),
            "blanket": graph.markov_blanket("stage"),
            "order": graph.topological_order(),
            "perturbed": graph.perturb(add=1, remove=1, reverse=1, seed=SEED),
            "distance": graph.shd(graph.perturb(reverse=2, seed=SEED)),
        }, graph.summary

    def network(folder: Path) -> Any:
        asia().write(folder / "asia.bif")
        return asia().sample_frame(30, rng=np.random.default_rng(SEED)), asia().to_bif()

    return {
        **{f"{name} written and read": round_trip(name) for name in get_args(formats.FormatName) if name != "bif"},
        "drawings": drawn,
        "questions": asked,
        "bif network": network,
    }


# ---- models, schemas, ledgers


def _model(**options: Any) -> Any:
    private = table.PrivateTable(_frame(), schema_of("mixed", "row"))
    return escudo.synthesize(private, graph_of("mixed"), epsilon=4.0, delta=1e-6, seed=SEED, **options)


def _models() -> dict[str, Ask]:
    def sampled(folder: Path) -> Any:
        model = _model()
        model.save(folder / "model")
        again = escudo.load(folder / "model")
        return (
            again.sample(40, seed=SEED),
            again.sample(20, do={"smoke": "yes"}, seed=SEED),
            again.sample(20, given={"lung": True}, seed=SEED),
            {"law": again.probability(["smoke", "lung"]), "do": again.probability(["lung"], do={"smoke": "no"})},
            str(again),
        )

    def linked(folder: Path) -> Any:
        made = synthesis.clinic(300, seed=SEED)
        tables = table.PrivateTables(made.frames, made.schema)
        terms: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "seed": SEED, "rows": 20}
        files = escudo.release(tables, folder / "out", made.graph, **terms)
        again = synthesis.load_linked(files.model)
        by_visit = {"visits.treat": {"1": "no", "2-": "yes"}}
        drawn = [*again.sample(12, seed=SEED).values(), *again.sample(12, do=by_visit, seed=SEED).values()]
        return drawn, str(again), str(again.plan), made.schema.to_toml()

    def linked_questions(folder: Path) -> Any:
        made = synthesis.clinic(300, seed=SEED)
        tables = table.PrivateTables(made.frames, made.schema)
        terms: dict[str, Any] = {"epsilon": 4.0, "seed": SEED}
        asked = "visits.treat@prev", "visits.severity"
        found = escudo.effect_of(tables, *asked, outcome_level="severe", graph=made.graph, **terms)
        graph = escudo.discover(tables, delta=1e-5, **terms)
        rows = synthesis.clinic(300, seed=SEED + 1).frames
        paid = utility.evaluate_privately(tables, rows, **terms)
        free = utility.evaluate(made.frames, rows, rows, made.schema)
        pages = report.treatment_page(found), report.discovery_page(graph), report.evaluation_page(free)
        return found.to_json(), graph.to_json(), paid.to_json(), free.to_json(), str(free), pages

    def nested(folder: Path) -> Any:
        made = synthesis.clinic(300, prescriptions=True, seed=SEED)
        tables = table.PrivateTables(made.frames, made.schema)
        terms: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "seed": SEED, "rows": 20}
        files = escudo.release(tables, folder / "out", made.graph, **terms)
        again = synthesis.load_linked(files.model)
        drawn = [
            *again.sample(12, seed=SEED).values(),
            *again.sample(12, do={"prescriptions.drug": {"1": "steroid"}}, seed=SEED).values(),
        ]
        rows = synthesis.clinic(300, prescriptions=True, seed=SEED + 1).frames
        paid = utility.evaluate_privately(tables, rows, epsilon=4.0, seed=SEED)
        return drawn, str(again.plan), made.schema.to_toml(), paid.to_json()

    def effect(folder: Path) -> Any:
        found = _model().effect("smoke", "lung")
        return found, str(found)

    def stable(folder: Path) -> Any:
        found = synthesis.stability(graph_of("numbers"), _frame("numbers").select(list(NUMBERS)), seed=SEED)
        return found, str(found)

    def released(folder: Path) -> Any:
        private = table.PrivateTable(_frame(), schema_of("mixed", "row"))
        files = report.write_release(
            _model(), folder / "out", rows=30, dataset="people", csv=True, seed=SEED, table=private
        )
        return {"csv": str(files.csv)}

    def evaluated(folder: Path) -> Any:
        schema = schema_of("mixed", "row")
        real, made = _frame(), _model().sample(200, seed=SEED)
        found = utility.evaluate(
            real[:200], real[200:], made, schema, targets=["lung"], learners=["logistic"], seed=SEED, jobs=1
        )
        return found, str(found), report.evaluation_page(found)

    return {
        "saved, loaded, sampled": sampled,
        "linked tables, released and sampled": linked,
        "linked tables, asked": linked_questions,
        "rows of rows, released and sampled": nested,
        "effect": effect,
        "stability": stable,
        "release with the custodian's copy": released,
        "evaluation": evaluated,
    }


def _schemas() -> dict[str, Ask]:
    def drafted(folder: Path) -> Any:
        schema = table.draft(_frame())
        schema.write(folder / "draft.toml")
        again = table.Schema.read(folder / "draft.toml")
        return schema, schema.to_toml(), repr(again), {"same": again == schema, "mark": schema.fingerprint}

    def checked(folder: Path) -> Any:
        found = table.check(_frame("mixed", "person"), schema_of("mixed", "person"))
        return found, str(found)

    def written(folder: Path) -> Any:
        schema_of("mixed", "person").write(folder / "schema.toml")
        return table.Schema.read(folder / "schema.toml"), table.outline(_frame()).to_toml()

    return {"draft": drafted, "check": checked, "written and read": written}


def _opened(folder: Path) -> str:
    """Make a ledger with a few spends; return its address."""
    url = f"sqlite:///{folder / 'input.ledger.db'}"
    with privacy.Ledger(url) as book:
        book.open("people", epsilon=5.0, delta=1e-5)
        book.open("visits", epsilon=1.0, delta=1e-6, relation="add_remove", unit="person", max_rows_per_person=2)
        for name in ("laplace", "gaussian", "pure"):
            receipt = book.spend("people", EVENTS[name], purpose=f"a {name} count")
        book.fail(receipt, "the power went out")
    return url


def _ledgers() -> dict[str, Ask]:
    def booked(folder: Path) -> Any:
        with privacy.Ledger(_opened(folder)) as book:
            rows = [(row.kind, dict(row.payload)) for row in book.history()]
            found = [book.total("people"), book.remaining("people"), book.info("visits"), book.verify().ok]
            return found, rows, "\n".join(map(str, found))

    def refused(folder: Path) -> Any:
        with privacy.Ledger(_opened(folder)) as book:
            return book.spend("people", privacy.PureEvent(epsilon=9.0), purpose="too much")

    def diagram(folder: Path) -> Any:
        with privacy.Ledger(_opened(folder)) as book:
            found = effects.from_ledger(book, "people", people=2)
        people = [name for name, node in found.nodes.items() if node.kind == "data point"]
        outputs = [name for name, node in found.nodes.items() if node.kind == "mechanism"]
        return str(found), effects.bound(found, of=people, on=outputs, delta=1e-6)

    def line(text: str) -> Ask:
        def ask(folder: Path) -> Any:
            return _command(f"{text} --ledger {_opened(folder)}", folder)

        return ask

    return {
        "totals and history": booked,
        "refused": refused,
        "diagram": diagram,
        "escudo ledger show": line("ledger show"),
        "escudo ledger show --json": line("ledger show --json"),
        "escudo ledger history": line("ledger history"),
        "escudo ledger verify": line("ledger verify"),
        "escudo effects --ledger": line("effects --dataset people --report page.html"),
    }


# ---- audits and attacks


def _noisy(scale: float) -> Callable[[Any, np.random.Generator], float]:
    def mechanism(dataset: Any, rng: np.random.Generator) -> float:
        return float(np.round(sum(dataset) + rng.laplace(scale=scale), 6))

    return mechanism


def _audits() -> dict[str, Ask]:
    pairs = [([0, 1, 1], [1, 1, 1], "one more")]

    def audited(scale: float, **claim: Any) -> Ask:
        def ask(folder: Path) -> Any:
            found = escudo.audit(
                _noisy(scale), claim=privacy.Guarantee(**claim), pairs=pairs, max_runs=3000, seed=SEED, progress=False
            )
            return found, str(found), report.audit_page(found, mechanism="a count")

        return ask

    def exactly(folder: Path) -> Any:
        found = auditing.exact(SEM.read(MODELS / "ada_and_byron.sem"), of="D1", on="O")
        return found, str(found)

    def replayed(sensitivity: int) -> Ask:
        def mechanism(dataset: Any, rng: np.random.Generator) -> Any:
            return mechanisms.laplace(sum(dataset), sensitivity=sensitivity, epsilon=1.0, seed=rng).value

        def ask(folder: Path) -> Any:
            found = auditing.replay(mechanism, [([0, 1], [2, 1])], seed=SEED)
            return found, str(found)

        return ask

    def once(folder: Path) -> Any:
        rng = np.random.default_rng(SEED)
        included = rng.random(400) < 0.5
        found = auditing.one_run(included + rng.normal(size=400), included, delta=1e-6)
        return found, str(found)

    def shown(folder: Path) -> Any:
        for remembered in vars(museum._training).values():  # maybe worked out by several threads, in another test
            getattr(remembered, "cache_clear", lambda: None)()
        return [[one.name, one.mechanism.claim, one.mechanism.true_epsilon] for one in museum.exhibits()]

    return {
        "broken": audited(0.3, epsilon=1.0),
        "kept": audited(1.0, epsilon=1.0),
        "with a delta": audited(0.3, epsilon=1.0, delta=1e-3),
        "exact": exactly,
        "replay": replayed(2),
        "replay of too little noise": replayed(1),
        "one run": once,
        "the museum's claims": shown,
    }


def _attacks() -> dict[str, Ask]:
    terms: dict[str, Any] = {"targets": 1, "seed": SEED, "jobs": 1}

    def attacked(folder: Path) -> Any:
        found = escudo.attack(
            "marginals",
            _frame(count=60),
            schema_of("mixed", "row"),
            graph=graph_of("mixed"),
            epsilon=2.0,
            attacks=[("queries", "likelihood ratio"), ("histogram", "logistic")],
            shadows=12,
            trials=12,
            **terms,
        )
        return found, str(found), report.attack_page(found)

    def inferred(folder: Path) -> Any:
        victim = attacks.victim_of("marginals", schema_of("mixed", "row"), graph_of("mixed"), epsilon=2.0)
        found = attacks.infer_attribute(victim, _frame(count=60), schema_of("mixed", "row"), "lung", fits=12, **terms)
        return found, str(found)

    def published(folder: Path) -> Any:
        victim = attacks.victim_of("independent", schema_of("mixed", "row"), epsilon=2.0)
        chosen: dict[str, Any] = {"features": ["naive"], "classifiers": ["neighbours"], "sets": 8}
        return attacks.published_game(victim, _frame(count=60), schema_of("mixed", "row"), **chosen, **terms)

    def ceiling(folder: Path) -> Any:
        return attacks.ceiling_of(privacy.Guarantee(epsilon=1.0, delta=1e-6), "replace_one")

    return {"membership": attacked, "attribute": inferred, "the published game": published, "ceiling": ceiling}


# ---- the command line, and what it says to mistakes


def _ready(folder: Path) -> None:
    """Put a table, a schema, a graph and a model where commands find them."""
    _frame().write_csv(folder / "input.csv")
    schema_of("mixed", "row").write(folder / "input.toml")
    (folder / "input.dot").write_text(_graph().to_text("dot"))
    (folder / "input.small.dot").write_text(graph_of("mixed").to_text("dot"))
    (folder / "input.sem").write_text((MODELS / "ada_and_byron.sem").read_text())


def _line(text: str) -> Ask:
    def ask(folder: Path) -> Any:
        _ready(folder)
        return _command(text, folder)

    return ask


def _commands() -> dict[str, Ask]:
    def sampled(text: str) -> Ask:
        def ask(folder: Path) -> Any:
            _model().save(folder / "input.model")
            return _command(f"sample input.model {text} --seed 3", folder)

        return ask

    lines = [
        "effects input.sem --report page.html",
        "effects input.sem --json",
        "definitions input.sem",
        "definitions input.sem --json",
        "graph show input.dot",
        "graph convert input.dot out.gml",
        "graph convert input.dot out.csv",
        "graph check input.small.dot --schema input.toml",
        "graph check input.dot --schema input.toml",
        "schema draft input.csv --out draft.toml",
        "schema check input.csv --schema input.toml",
        "museum --list",
        "release input.csv -s input.toml -g input.small.dot -e 1 --plan",
    ]
    return {
        **{f"escudo {line}": _line(line) for line in lines},
        "escudo sample": sampled("--rows 5"),
        "escudo sample --do": sampled("--rows 5 --do smoke=yes --json"),
        "escudo sample --given": sampled("--rows 8 --given lung=True --out rows.csv"),
    }


def _helps() -> dict[str, Ask]:
    def listed(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            yield from listed(inner, (*path, name))

    def helped(path: tuple[str, ...]) -> Ask:
        def ask(folder: Path) -> Any:
            return _command(shlex.join([*path, "--help"]), folder)

        return ask

    command: click.Command = typer.main.get_command(app)
    return {" ".join(("escudo", *path)): helped(path) for path in listed(command, ())}


def _mistakes() -> dict[str, Ask]:
    def private(content: Any = "mixed", unit: Any = "row") -> table.PrivateTable:
        return table.PrivateTable(_frame(content, unit), schema_of(content, unit))

    def made(function: Callable[..., Any], *values: Any, **terms: Any) -> Ask:
        def ask(folder: Path) -> Any:
            return function(*[value() if isinstance(value, partial) else value for value in values], **terms)

        return ask

    mixed, numbers = partial(private), partial(private, "numbers")
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "seed": 1}
    python = {
        "epsilon of nought": made(escudo.synthesize, mixed, None, epsilon=0, delta=1e-6),
        "epsilon of nan": made(escudo.discover, mixed, epsilon=math.nan, delta=1e-6),
        "epsilon as text": made(escudo.synthesize, mixed, None, epsilon="one", delta=1e-6),
        "delta above one": made(escudo.synthesize, mixed, None, epsilon=1.0, delta=2.0),
        "delta that is large": made(escudo.synthesize, mixed, None, epsilon=1.0, delta=0.1),
        "a generator that is not": made(escudo.synthesize, mixed, None, generator="magic", **budget),
        "an option that is not": made(escudo.synthesize, mixed, None, magic=1, **budget),
        "a graph of other columns": made(escudo.synthesize, mixed, CausalGraph.from_edges([("a", "b")]), **budget),
        "linear with categories": made(escudo.synthesize, mixed, None, generator="linear", **budget),
        "a method that is not": made(escudo.discover, mixed, method="magic", **budget),
        "gaussian discovery of categories": made(escudo.discover, mixed, method="gaussian", **budget),
        "a relation that is not": made(escudo.discover, mixed, relation="change", **budget),
        "a seed that is not": made(escudo.discover, mixed, epsilon=1.0, delta=1e-6, seed="x"),
        "a direction of a column to itself": made(escudo.direction, numbers, "dose", "dose", epsilon=1.0),
        "a direction of no column": made(escudo.direction, numbers, "dose", "weight", epsilon=1.0),
        "a direction of categories": made(escudo.direction, mixed, "smoke", "age", epsilon=1.0),
        "an effect without a graph": made(escudo.effect_of, mixed, "smoke", "lung", graph=None, epsilon=1.0),
        "an effect on itself": made(escudo.effect_of, mixed, "lung", "lung", graph=graph_of("mixed"), epsilon=1.0),
        "an effect that is not identified": made(
            escudo.effect_of, mixed, "smoke", "lung", graph=_graph().subgraph(["smoke", "lung", "hidden"]), epsilon=1.0
        ),
        "a list for a frame": made(table.PrivateTable, [1, 2], schema_of("mixed", "row")),
        "a schema that is no schema": made(table.PrivateTable, _frame(), {"smoke": ["no", "yes"]}),
        "a frame that lacks columns": made(table.PrivateTable, _frame().select("age"), schema_of("mixed", "row")),
        "a schema of unknown kinds": made(table.Schema.from_dict, {"a": {"type": "magic"}}),
        "a schema with bounds swapped": made(
            table.Schema.from_dict, {"a": {"type": "numeric", "lower": 2, "upper": 1}}
        ),
        "levels twice": made(table.Schema.from_dict, {"a": ["x", "x"]}),
        "a person without a bound": made(table.Schema.from_dict, {"a": ["x", "y"]}, person_id="who"),
        "a graph with a circle": made(CausalGraph.from_edges, [("a", "b"), ("b", "a")]),
        "a graph that is no graph": made(CausalGraph.parse, "digraph { a -> ", "dot"),
        "a model that is no model": made(SEM.parse, "x = y +"),
        "a model file that is not there": made(escudo.load, "FOLDER/nothing"),
        "no noise": made(mechanisms.laplace, [1.0], sensitivity=1.0),
        "values that are not": made(mechanisms.laplace, [math.nan], sensitivity=1.0, epsilon=1.0),
        "an audit without pairs": made(escudo.audit, _noisy(1.0), claim=privacy.Guarantee(epsilon=1.0)),
        "a guarantee of nothing": made(privacy.Guarantee),
        "an event of another unit": made(
            privacy.MemoryAccount(unit="person", max_rows_per_person=3).spend, privacy.PureEvent(epsilon=1.0)
        ),
    }
    lines = [
        "release nothing.csv -s input.toml -g input.small.dot -e 1 -o out",
        "release input.csv -s nothing.toml -g input.small.dot -e 1 -o out",
        "release input.csv -s input.toml -g input.small.dot -o out",
        "release input.csv -s input.toml -g input.small.dot -e 1 -o out --generator magic",
        "release input.csv -s input.toml -g input.small.dot -e 1 -o out --ledger nowhere",
        "discover input.csv -s input.toml -e -1",
        "direction input.csv smoke weight -s input.toml -e 1",
        "effect input.csv smoke lung -s input.toml -e 1",
        "sample nothing",
        "graph show nothing.dot",
        "ledger show",
        "magic",
    ]
    return {**python, **{f"escudo {line}": _line(line) for line in lines}}
