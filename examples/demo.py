"""The main job in a minute: a private clinic, a causal graph, a budget; synthetic patients, a report, an intervention.

20,000 patients are simulated from the Asia network, which is in the package, so the truth is known. The noise is real:
every run releases something else. Everything lands in ``demo/``; a second run replaces what the first one made, except
the ledger, which adds up.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import numpy as np

import escudo
from escudo.causal import Factor, Network, asia, contract
from escudo.errors import BudgetExceededError
from escudo.report import write_release
from escudo.synthesis import Model, fitting, prepare

PATIENTS = 20_000
SIMULATION_SEED = 1988  # of the patients, who are not real; the noise of the release has no seed
EPSILON, DELTA, CAP = 1.0, 1e-6, 3.0
FOLDER = Path("demo")
ABOUT = FOLDER / "ABOUT.txt"


def make_folder() -> None:
    """Make demo/, or stop if there is one that this demo did not make."""
    if FOLDER.exists() and not ABOUT.exists():
        sys.exit(f"{FOLDER}/ exists and was not made by this demo. Move it away, or run the demo in another folder.")
    FOLDER.mkdir(exist_ok=True)
    ABOUT.write_text("Made by escudo's examples/demo.py from simulated patients. Remove this folder to start over.\n")


def true_share(clinic: Network, smoke: str) -> float:
    """Return P(dysp = yes | do(smoke)) of the network itself: the product of all tables but the one that is cut."""
    factors = [Factor((*clinic.parents[name], name), clinic.table(name)) for name in clinic.nodes if name != "smoke"]
    held = np.eye(2)[clinic.code("smoke", smoke)]
    return float(contract([*factors, Factor(("smoke",), held)], ["dysp"])[clinic.code("dysp", "yes")])


def released_share(model: Model, smoke: str) -> float:
    """Return how many of the synthetic patients are short of breath when smoking is set by intervention."""
    return float((model.sample(PATIENTS, do={"smoke": smoke})["dysp"] == "yes").mean())


def main() -> None:
    start = time.perf_counter()
    make_folder()
    clinic = asia()
    patients = clinic.sample_frame(PATIENTS, rng=np.random.default_rng(SIMULATION_SEED))
    schema = escudo.Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()})
    patients.write_parquet(FOLDER / "patients.parquet")
    schema.write(FOLDER / "clinic.toml", overwrite=True)
    clinic.graph.write(FOLDER / "clinic.dot")
    print(f"escudo demo: {PATIENTS:,} patients of a simulated chest clinic, {len(schema.names)} columns, graph known\n")

    ledger = escudo.Ledger(f"sqlite:///{FOLDER / 'ledger.db'}")
    if not (FOLDER / "ledger.db").exists():
        ledger.forget()  # an earlier demo's ledger was removed with its folder
    account = ledger.open("clinic", epsilon=CAP, delta=DELTA)
    prepared = prepare(schema, clinic.graph, epsilon=EPSILON, delta=DELTA)
    print(f"Budget (the plan; nothing is spent yet)\n{prepared.plan}\n")
    try:
        with fitting(prepared, escudo.PrivateTable(patients, schema, account)) as model:
            files = write_release(model, FOLDER / "release", rows=PATIENTS, dataset="clinic", overwrite=True)
    except BudgetExceededError as refused:
        print(f"Refused: {refused}\nThat is what a ledger is for. To start over, remove the folder {FOLDER}/.")
        return
    used = account.info().used
    release = FOLDER / "release"
    print(f"Released to {release}/   ({time.perf_counter() - start:.1f} s)")
    print(f"  synthetic.parquet   {PATIENTS:,} rows        model/         sample it again, or under an intervention")
    print("  report.html         open this          release.json   the machine-readable record")
    print("  explore.html        ask it what if, in a browser")
    print(f"What it means: {model.guarantee}")
    print(f"Ledger: {used:.0%} of the budget of ε = {CAP:.2f} is used, over all runs of this demo\n")

    print("What if? Shortness of breath, by intervention   released model   the truth")
    for smoke, whom in (("yes", "everybody smoked"), ("no", "nobody smoked")):
        found, truth = released_share(model, smoke), true_share(clinic, smoke)
        print(f"  if {whom:<17}  {f'do(smoke = {smoke})':<24}   {found:>14.1%}   {truth:>9.1%}")
        assert abs(found - truth) < 0.05, "twenty times the usual error"

    print(f"\nOpen {files.report}")
    command = "escudo" if shutil.which("escudo") else str(Path(sys.executable).with_name("escudo"))
    print(f"Try: {command} sample {release / 'model'} --rows 5 --do smoke=yes")
    print(f"     {command} ledger history --ledger sqlite:///{FOLDER / 'ledger.db'}")
    inputs = f"{FOLDER / 'patients.parquet'} --schema {FOLDER / 'clinic.toml'} --graph {FOLDER / 'clinic.dot'}"
    print(f"     {command} release {inputs} --epsilon 0.5 --plan")
    assert ledger.verify().ok
    assert model.guarantee.epsilon_at(DELTA) <= EPSILON


if __name__ == "__main__":
    main()
