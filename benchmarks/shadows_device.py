"""The membership game against VAEs, all shadow models trained at once on an accelerator.

Two halves. ``prepare`` runs where escudo and the data are, and writes one file of numbers; ``train`` needs jax and
numpy beside escudo's source, and writes what each shadow's synthetic rows look like to an attacker::

    python benchmarks/shadows_device.py prepare --data DIR --out device-data/shadows.npz
    PYTHONPATH=src python3 benchmarks/shadows_device.py train device-data/shadows.npz --out DIR

``experiments/membership.py`` plays the game on what comes back.

**The game.** 5,000 rows of the refitted pain simulator; one of them, the one furthest from its neighbours, is the
target, and another stands in its place otherwise. Everything else is held fixed. Training is the paper's: Poisson
samples of 100, 100 epochs, Adam at 1e-3, latent of 10, three layers; with noise for ε = 5.62 at δ = 1e-5 (add/remove),
or without clipping and noise. The causal model is the paper's condensed one: causes, then conditions given causes, both
given z. Each shadow's 5,000 synthetic rows are reduced on the device to the share of ones in each column, and how many
rows agree with the target on sets of one, two and three columns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20_261_115
ROWS, BATCH, EPOCHS = 5000, 100, 100
STEPS = EPOCHS * ROWS // BATCH
EPSILON, DELTA = 5.62, 1e-5
COPIES, AT_ONCE = 1000, 500
TARGET_SECONDS = 60


# -- where escudo and the data are


def prepare(data: Path, out: Path) -> None:
    """Draw the rows, choose the target and the questions, and calibrate the noise."""
    import escudo
    from escudo.attacks import outlyingness
    from escudo.attacks._features import Attacker
    from escudo.privacy import RepeatedEvent, SampledGaussianEvent, calibrate
    from escudo.utility import Rows

    sys.path.insert(0, str(Path(__file__).parent))
    from wide import FILES, Truth

    folder = data / "neuropathic_pain"
    arrows = np.load(folder / FILES[0]).astype(bool)
    known = np.loadtxt(folder / FILES[1], delimiter=",", skiprows=1, dtype=np.uint8)
    rng = np.random.default_rng(SEED)
    codes = Truth.refitted(known, arrows).drawn(ROWS + 1, rng)
    schema = escudo.Schema.from_dict({f"c{place}": ["0", "1"] for place in range(codes.shape[1])})
    rows = Rows(schema=schema, codes=codes.astype(np.int64), numbers=np.full(codes.shape, np.nan))
    target = int(np.argmax(outlyingness(rows, rng)))
    order = [*np.delete(np.arange(ROWS + 1), [target, (target + 1) % (ROWS + 1)]), target, (target + 1) % (ROWS + 1)]
    every = np.arange(ROWS + 1)
    attacker = Attacker.of(rows.take(every == target), rows.take(every != target), seed=SEED)
    sets = np.array([(*places, *places[-1:] * (3 - len(places))) for places in attacker.queries], dtype=np.int16)

    def events(noise: float) -> Any:
        step = SampledGaussianEvent(
            noise_multiplier=noise, sampling_probability=BATCH / ROWS, rows=1, relation="add_remove"
        )
        return RepeatedEvent(event=step, count=STEPS, relation="add_remove")

    noise = calibrate(events, epsilon=EPSILON, delta=DELTA)
    causes = np.flatnonzero(arrows.any(axis=1))
    out.parent.mkdir(exist_ok=True)
    np.savez_compressed(out, rows=codes[order], queries=sets, causes=causes, noise=noise)
    print(f"{out}: noise multiplier {noise:.4f}, {causes.size} causes, {len(sets)} queries, row {target} is the target")


# -- where the accelerator is


def network(causes: Any, columns: int, causal: bool) -> Any:
    """Return the paper's VAE, with or without the condensed graph."""
    from escudo.synthesis.neural._columns import Columns, ColumnSpec
    from escudo.synthesis.neural._network import Network, Unit

    first = tuple(int(place) for place in causes)
    rest = tuple(place for place in range(columns) if place not in set(first))
    return Network(
        columns=Columns((ColumnSpec(2),) * columns),
        units=(Unit(first, ()), Unit(rest, first)) if causal else (Unit(tuple(range(columns)), ()),),
        direct=False,
        hidden=(128, 64) if causal else (),
        latent=10,
        encoder=(128, 64),
        decoder=(64, 128),
    )


def shadows(vae: Any, causes: Any, rows: Any, queries: Any, *, noise: float, clip: float) -> Any:
    """Return a function that trains copies and returns what their synthetic rows look like."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import _core
    from escudo.mechanisms.dpsgd._sampling import capacity_for, device_slots

    recipe = _core.Recipe(generator="rbg", averaged=False, split=False)
    knobs = _core.Knobs(*map(jnp.float32, (clip, noise * min(clip, 1.0), BATCH, 1e-3, 1e6, 0.0, 0.0)))
    chance = BATCH / ROWS
    draw = partial(
        device_slots, rows=ROWS, probability=chance, capacity=capacity_for(ROWS, chance), key_words=4, steps=STEPS // 10
    )
    target = rows[ROWS - 1]
    first = jnp.zeros(rows.shape[1], bool).at[jnp.asarray(causes)].set(True)

    def more(state: Any, key: Any, there: Any) -> Any:
        slots = draw(key)
        place = jnp.where(
            slots.rows == ROWS - 1, ROWS - there.astype(jnp.int32), slots.rows
        )  # the target, or the other
        return _core.run(vae, vae.layout, recipe, rows, knobs, state, slots._replace(rows=place))

    def dense(layer: Any, x: Any) -> Any:
        return x @ layer["w"] + layer.get("b", 0.0)

    def looked_at(parameters: Any, key: Any) -> Any:
        tree = vae.layout.unflatten(parameters)
        keys = jax.random.split(key, 3)
        x = jax.random.normal(keys[0], (ROWS, vae.latent))
        for depth in range(len(vae.decoder)):
            x = jax.nn.relu(dense(tree[f"decode {depth}"], x))
        outputs = dense(tree["decode out"], x) + tree["base"]["b"]
        made = jax.random.uniform(keys[1], outputs.shape) < jax.nn.sigmoid(outputs)
        if vae._masked_layers:
            x = made.astype(jnp.float32)
            for name, mask, _ in vae._masked_layers:
                x = x @ (tree[name]["w"] * mask) + tree[name].get("b", 0.0)
                x = x if name == "hidden out" else jax.nn.relu(x)
            later = jax.random.uniform(keys[2], outputs.shape) < jax.nn.sigmoid(outputs + x)
            made = jnp.where(first, made, later)
        same = made == (target > 0)
        agree = same[:, queries].all(axis=-1).mean(axis=0)
        return made.mean(axis=0), agree

    start = np.asarray(vae.layout.flatten(vae.start(np.random.default_rng(0))), np.float32)
    steps = jax.jit(jax.vmap(more), donate_argnums=0)
    looks = jax.jit(
        lambda parameters, keys: jax.lax.map(lambda one: looked_at(*one), (parameters, keys), batch_size=10)
    )

    def run(there: Any, key: Any) -> tuple[Any, Any]:
        state = jax.vmap(partial(_core.first_state, split=False))(jnp.tile(start, (there.size, 1)))
        for part in jax.random.split(key, 11)[:10]:
            state = steps(state, jax.random.split(part, there.size), there)
        ones, agree = looks(state.parameters, jax.random.split(jax.random.fold_in(key, 1), there.size))
        return np.asarray(ones), np.asarray(agree)

    return run


def train(source: Path, out: Path, copies: int) -> None:
    """Train the shadows of four models and write what their synthetic rows look like, with the times."""
    import jax
    import jax.numpy as jnp

    given = np.load(source)
    rows, queries = jnp.asarray(given["rows"]), jnp.asarray(given["queries"].astype(np.int32))
    out.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = {}
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "copies": copies,
        "steps": STEPS,
        "noise_multiplier": float(given["noise"]),
        "models": {},
    }
    rng = np.random.default_rng(SEED)
    for causal in (True, False):
        vae = network(given["causes"], rows.shape[1], causal)
        for private in (True, False):
            name = f"{'causal' if causal else 'plain'}, {'private' if private else 'not private'}"
            noise, clip = (float(given["noise"]), 1.0) if private else (0.0, np.inf)
            run = shadows(vae, given["causes"], rows, queries, noise=noise, clip=clip)
            there = rng.random(copies) < 0.5
            took, parts = [], []
            for begin in range(0, copies, AT_ONCE):
                began = time.perf_counter()
                coins = jnp.asarray(there[begin : begin + AT_ONCE])
                parts.append(run(coins, jax.random.key(int(rng.integers(2**31)), impl="rbg")))
                took.append(time.perf_counter() - began)
            kept[f"{name}/there"] = there
            kept[f"{name}/histogram"] = np.concatenate([part[0] for part in parts]).astype(np.float32)
            kept[f"{name}/queries"] = np.concatenate([part[1] for part in parts]).astype(np.float32)
            report["models"][name] = {
                "seconds": sum(took),
                "seconds_without_compiling": min(took) * len(took),
                "model_steps_per_second": copies * STEPS / (min(took) * len(took)),
                "mean_of_ones": float(kept[f"{name}/histogram"].mean()),
            }
            print(name, report["models"][name], flush=True)
    memory = jax.devices()[0].memory_stats() or {}
    report["peak_gb"] = memory.get("peak_bytes_in_use", 0) / 2**30
    np.savez_compressed(out / "shadows.npz", **kept)
    (out / "shadows_device.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("--data", type=Path, default=Path("../shared/data"))
    first.add_argument("--out", type=Path, default=Path("device-data/shadows.npz"))
    second = commands.add_parser("train")
    second.add_argument("source", type=Path)
    second.add_argument("--out", type=Path, default=Path("device-data"))
    second.add_argument("--copies", type=int, default=COPIES)
    chosen = parser.parse_args()
    if chosen.command == "prepare":
        prepare(chosen.data, chosen.out)
    else:
        train(chosen.source, chosen.out, chosen.copies)


if __name__ == "__main__":
    main()
