"""The paper's VAEs as printed, many at once: what ``printed_vaes.py`` trains, on an accelerator.

Needs escudo's source, jax, numpy and lazy_loader only::

    python experiments/printed_vaes.py --prepare device-data/printed.npz
    PYTHONPATH=src python3 experiments/_printed.py device-data/printed.npz --out DIR     # where the accelerator is
    python experiments/printed_vaes.py --trained DIR

**search/TABLE**: each network with the paper's noise for its ε and with gradients clipped at one of several lengths,
and without clipping and noise; comes back as synthetic rows. **wrong/GRAPH**: the causal VAE on 80,000 rows of Asia,
with and without noise, hundreds of copies each, the first row being the target's or another person's by a coin; comes
back as how many of 20,000 synthetic rows each of the 256 cells has. One file for each; what is there is not trained
again, and nothing new is begun after ``--seconds``.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SEGMENT = 250  # steps whose samples are drawn in one go


def network_of(form: dict[str, Any]) -> Any:
    """Return a network over columns of two levels."""
    from escudo.synthesis.neural._network import Columns, ColumnSpec, Network, Unit

    some = {name: None if form[name] is None else tuple(form[name]) for name in ("encoded", "reached")}
    return Network(
        columns=Columns((ColumnSpec(2),) * form["columns"]),
        units=tuple(Unit(tuple(own), tuple(parents)) for own, parents in form["units"]),
        direct=False,
        hidden=tuple(form["hidden"]),
        latent=10,
        encoder=(128, 64),
        decoder=(64, 128),
        **some,
    )


def trainer(network: Any, *, rows: int, batch: int, steps: int) -> Any:
    """Return a function that trains copies side by side, each with its own knobs, start, samples and first row."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import _core
    from escudo.mechanisms.dpsgd._sampling import Sampling, capacity_for, device_slots

    recipe, chance = _core.Recipe(averaged=False, split=False), batch / rows
    length = next(each for each in range(min(SEGMENT, steps), 0, -1) if steps % each == 0)
    draw = partial(device_slots, sampling=Sampling(rows, chance, length), capacity=capacity_for(rows, chance))

    def more(data: Any, knobs: Any, state: Any, key: Any, world: Any) -> Any:
        slots = draw(key)
        place = jnp.where(slots.rows == 0, rows * world, slots.rows)  # the first row, or the one after the last
        return _core.run(network, network.layout, recipe, data, knobs, state, slots._replace(rows=place))

    go = jax.jit(jax.vmap(more, in_axes=(None, 0, 0, 0, 0)), donate_argnums=2)

    def run(data: Any, knobs: Any, worlds: Any, seed: int, left: float) -> Any:
        rng = np.random.default_rng(seed)
        starts = np.stack(
            [np.asarray(network.layout.flatten(network.start(rng)), np.float32) for _ in range(len(worlds))]
        )
        state = jax.vmap(partial(_core.first_state, split=False))(jnp.asarray(starts))
        keys = jax.random.split(jax.random.key(seed), len(worlds))
        folded = jax.vmap(jax.random.fold_in, in_axes=(0, None))
        data, worlds = jnp.asarray(data), jnp.asarray(worlds, jnp.int32)
        began = 0.0
        for part in range(steps // length):
            if part == 1:  # the first one was compiled, too
                jax.block_until_ready(state)
                began = time.perf_counter()
            if part == 5:
                jax.block_until_ready(state)
                needed = (time.perf_counter() - began) / 4 * steps / length
                print(f"{steps} steps of {len(worlds)} copies take about {needed:.0f} s", flush=True)
                if needed > left:
                    raise TimeoutError(f"{needed:.0f} s are more than the {left:.0f} s that are left")
            state = go(data, knobs, state, folded(keys, part), worlds)
        return state.parameters, folded(keys, steps)

    return run


def tiers_of(network: Any) -> list[list[int]]:
    """Return the columns in tiers: each tier's parents lie in earlier ones."""
    parents = {column: set(unit.parents) for unit in network.units for column in unit.columns}
    tiers: list[list[int]] = []
    known: set[int] = set()
    while len(known) < len(parents):
        tiers.append([column for column in sorted(parents) if column not in known and parents[column] <= known])
        known.update(tiers[-1])
    return tiers


def sampler(network: Any, size: int) -> Any:
    """Return a function that draws rows from the parameters of one copy."""
    import jax
    import jax.numpy as jnp

    tiers = tiers_of(network)

    def dense(layer: Any, x: Any) -> Any:
        return x @ layer["w"] + layer.get("b", 0.0)

    def drawn(parameters: Any, key: Any) -> Any:
        tree = network.layout.unflatten(parameters)
        for_latent, *for_tiers = jax.random.split(key, 1 + len(tiers))
        x = jax.random.normal(for_latent, (size, network.latent))
        for depth in range(len(network.decoder)):
            x = jax.nn.relu(dense(tree[f"decode {depth}"], x))
        outputs = jnp.zeros((size, network.columns.width)).at[:, network._written].add(dense(tree["decode out"], x))
        outputs = outputs + tree["base"]["b"]
        made = jnp.zeros(outputs.shape, jnp.float32)
        for own, tier in zip(for_tiers, tiers, strict=True):
            x, score = made, outputs
            for name, mask, _ in network._masked_layers:
                x = x @ (tree[name]["w"] * mask) + tree[name].get("b", 0.0)
                x = x if name == "hidden out" else jax.nn.relu(x)
            if network._masked_layers:
                score = outputs + x
            mine = np.zeros(outputs.shape[1], bool)
            mine[list(tier)] = True
            made = jnp.where(mine, jax.random.uniform(own, outputs.shape) < jax.nn.sigmoid(score), made)
        return made

    return drawn


def knobs_of(clips: Any, noises: Any, batch: int) -> Any:
    """Return the numbers of all copies: clip bound and noise in units of it; neither where the bound is infinite."""
    from escudo.mechanisms.dpsgd import _core

    copies = len(clips)
    scale = [0.0 if np.isinf(clip) else clip * noise for clip, noise in zip(clips, noises, strict=True)]
    columns = (clips, scale, [batch] * copies, [1e-3] * copies, [1e6] * copies, [0.0] * copies, [0.0] * copies)
    return _core.Knobs(*(np.asarray(column, np.float32) for column in columns))


def train(source: Path, out: Path, *, seconds: float, small: bool) -> None:
    """Train everything that is not in ``out`` yet."""
    import jax

    began, given = time.perf_counter(), dict(np.load(source))
    out.mkdir(parents=True, exist_ok=True)
    for job in json.loads(str(given["jobs"])):
        file = out / f"{job['name'].replace('/', '-')}.npz"
        if file.exists() or time.perf_counter() - began > seconds:
            continue
        start, table = time.perf_counter(), given[f"{job['table']}/rows"]
        rows, facts, kept = len(table) - 1, {"device": jax.devices()[0].device_kind, "jax": jax.__version__}, {}
        steps = 20 if small else job["steps"]
        for place, (model, form) in enumerate(job["models"].items()):
            network = network_of(form)
            run = trainer(network, rows=rows, batch=job["batch"], steps=steps)
            clips, noises = np.array(job["clips"]), np.array(job["noises"])
            worlds = given[f"{job['name']}/worlds"]
            knobs = knobs_of(clips, noises, job["batch"])
            left = seconds + 120 - (time.perf_counter() - began)
            parameters, keys = run(table, knobs, worlds, job["seed"] + place, left)
            if job["name"].startswith("search"):
                draw = jax.jit(jax.vmap(sampler(network, job["size"])))
                made = np.asarray(draw(parameters, keys)).astype(bool)
                kept[f"{model}/rows"] = np.packbits(made, axis=2)
            else:
                one = sampler(network, job["size"])

                def counted(given: Any, one: Any = one) -> Any:
                    import jax.numpy as jnp

                    made = one(*given)
                    cell = (made @ (2.0 ** np.arange(made.shape[1]))).astype(jnp.int32)
                    return jnp.zeros(2 ** made.shape[1], jnp.int32).at[cell].add(1)

                count = jax.jit(lambda p, k, f=counted: jax.lax.map(f, (p, k), batch_size=8))
                kept[f"{model}/counts"] = np.asarray(count(parameters, keys)).astype(np.uint16)
            facts[model] = {"parameters": network.layout.size, "finite": bool(np.isfinite(parameters).all())}
        facts["seconds"] = round(time.perf_counter() - start, 1)
        np.savez_compressed(file, facts=json.dumps(facts), **kept)
        print(job["name"], facts, flush=True)


def main() -> None:
    """Train where jax runs."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("source", type=Path, help="what printed_vaes.py --prepare wrote")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seconds", type=float, default=420, help="after which nothing new is begun")
    options.add_argument("--small", action="store_true", help="20 steps each: whether it runs")
    chosen = options.parse_args()
    train(chosen.source, chosen.out, seconds=chosen.seconds, small=chosen.small)


if __name__ == "__main__":
    main()
