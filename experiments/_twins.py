"""VAEs of the same table with one record replaced, hundreds at once: what ``amplification.py`` trains.

Needs escudo's source, jax and numpy only, so that it runs on any accelerator's image::

    python experiments/amplification.py --prepare FILE.npz
    PYTHONPATH=src python3 experiments/_twins.py FILE.npz --out DIR     # where the accelerator is
    python experiments/amplification.py --trained DIR

**Worlds.** 999 rows are fixed. The last place holds one of four records: the *target*, furthest from its neighbours;
one *other* and a *second* person of the same population; or a *canary*, with the rarer level in every column.

**Two kinds of copies.** Copies for the membership game have their own samples and noise, and the target or the other by
a coin. Copies for stability come in fours, one for each world, with the same start, samples and noise: what differs
between them is due to the one record.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROWS, BATCH, STEPS = 1000, 100, 1000  # the paper's: samples of 100, 100 epochs
TABLES = ("Asia", "Pain1000")
MODELS = {"causal": True, "plain": False}
VAES = {**MODELS, "wide": False}  # wide: without the graph, with as many parameters as the causal one
EPSILONS = ("1", "3", "inf")
WORLDS = ("target", "other", "second", "canary")
SEEDS = (1, 2, 3, 4, 5)
COPIES, FOURS = 400, 16
SEED = 20_261_115


def network_of(units: Any, columns: int, *, causal: bool, condensed: bool, narrowest: int = 64) -> Any:
    """Return the paper's VAE over columns of two levels, with or without the graph."""
    from escudo.synthesis.neural._network import Columns, ColumnSpec, Network, Unit

    own = tuple(Unit(tuple(map(int, own)), tuple(map(int, parents))) for own, parents in units)
    return Network(
        columns=Columns((ColumnSpec(2),) * columns),
        units=own if causal else (Unit(tuple(range(columns)), ()),),
        direct=False,
        hidden=(() if not causal else (128, 64) if condensed else (16, 16)),
        latent=10,
        encoder=(2 * narrowest, narrowest),
        decoder=(narrowest, 2 * narrowest),
    )


def wide_network(units: Any, columns: int, *, condensed: bool) -> Any:
    """Return a VAE without the graph whose layers are widened until it has as many parameters as the causal one."""

    def size(network: Any) -> int:
        return int(network.layout.flatten(network.start(np.random.default_rng(0))).size)

    wanted = size(network_of(units, columns, causal=True, condensed=condensed))
    tried = (network_of(units, columns, causal=False, condensed=condensed, narrowest=w) for w in range(64, 257))
    return min(tried, key=lambda network: abs(size(network) - wanted))


def trainer(vae: Any, edges: Any) -> Any:
    """Return a function that trains copies and looks at what they make; compiled once for all seeds and budgets."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import _core
    from escudo.mechanisms.dpsgd._sampling import Sampling, capacity_for, device_slots
    from escudo.synthesis.neural._model import _tiers

    # Not the faster "rbg": under vmap its equal keys do not give equal noise, and fours must share theirs.
    recipe = _core.Recipe(averaged=False, split=False)
    chance = BATCH / ROWS
    parts = 10
    draw = partial(device_slots, sampling=Sampling(ROWS, chance, STEPS // parts), capacity=capacity_for(ROWS, chance))
    tiers = _tiers(vae)
    start = np.asarray(vae.layout.flatten(vae.start(np.random.default_rng(0))), np.float32)
    causes, effects = jnp.asarray(edges[:, 0]), jnp.asarray(edges[:, 1])

    def more(rows: Any, knobs: Any, state: Any, key: Any, world: Any) -> Any:
        slots = draw(key)
        place = jnp.where(slots.rows == ROWS - 1, ROWS - 1 + world, slots.rows)
        return _core.run(vae, vae.layout, recipe, rows, knobs, state, slots._replace(rows=place))

    def dense(layer: Any, x: Any) -> Any:
        return x @ layer["w"] + layer.get("b", 0.0)

    def looked_at(rows: Any, queries: Any, covariances: Any, parameters: Any, key: Any) -> Any:
        tree = vae.layout.unflatten(parameters)
        for_latent, *for_tiers = jax.random.split(key, 1 + len(tiers))
        x = jax.random.normal(for_latent, (ROWS, vae.latent))
        for depth in range(len(vae.decoder)):
            x = jax.nn.relu(dense(tree[f"decode {depth}"], x))
        outputs = dense(tree["decode out"], x) + tree["base"]["b"]
        made = jnp.zeros(outputs.shape, jnp.float32)
        chances = jnp.zeros(outputs.shape, jnp.float32)
        for own, tier in zip(for_tiers, tiers, strict=True):
            x, score = made, outputs
            for name, mask, _ in vae._masked_layers:
                x = x @ (tree[name]["w"] * mask) + tree[name].get("b", 0.0)
                x = x if name == "hidden out" else jax.nn.relu(x)
            if vae._masked_layers:
                score = outputs + x
            mine = np.zeros(outputs.shape[1], bool)
            mine[list(tier)] = True
            chances = jnp.where(mine, jax.nn.sigmoid(score), chances)
            drawn = jax.random.uniform(own, outputs.shape) < chances
            made = jnp.where(mine, drawn, made)
        same = made == (rows[ROWS - 1] > 0)
        agree = same[:, queries].all(axis=-1).sum(axis=0)
        shares = made.mean(axis=0)
        found = made.T @ made / ROWS - shares[:, None] * shares
        off = ~jnp.eye(len(found), dtype=bool)

        def apart(kept: Any, theirs: Any) -> Any:
            return jnp.sqrt(((kept - theirs) ** 2).sum() / (theirs**2).sum())

        return {
            "ones": made.sum(axis=0).astype(jnp.uint16),
            "agree": agree.astype(jnp.uint16),
            "shares": chances.mean(axis=0),
            "cov_all": apart(jnp.where(off, found, 0), jnp.where(off, covariances, 0)),
            "cov_edges": apart(found[causes, effects], covariances[causes, effects]),
        }

    steps = jax.jit(jax.vmap(more, in_axes=(None, None, 0, 0, 0)), donate_argnums=2)
    looks = jax.jit(
        lambda rows, queries, covariances, parameters, keys: jax.lax.map(
            lambda one: looked_at(rows, queries, covariances, *one), (parameters, keys), batch_size=8
        )
    )

    def run(given: dict[str, Any], worlds: Any, keys: Any, *, noise: float) -> tuple[dict[str, Any], Any]:
        rows, queries, covariances = (jnp.asarray(given[name]) for name in ("rows", "queries", "covariances"))
        clip = 1.0 if noise else np.inf
        knobs = _core.Knobs(*map(jnp.float32, (clip, noise, BATCH, 1e-3, 1e6, 0.0, 0.0)))
        state = jax.vmap(partial(_core.first_state, split=False))(jnp.tile(start, (worlds.size, 1)))
        folded = jax.vmap(jax.random.fold_in, in_axes=(0, None))
        for part in range(parts):
            state = steps(rows, knobs, state, folded(keys, part), worlds)
        seen = looks(rows, queries, covariances, state.parameters, folded(keys, parts))
        return {name: np.asarray(values) for name, values in seen.items()}, np.asarray(state.parameters)

    return run, start


def changes(parameters: Any, shares: Any, start: Any) -> dict[str, float]:
    """Return how far one record moves what was trained; arrays of shape (fours, worlds, …)."""
    other = WORLDS.index("other")
    moved = np.linalg.norm(parameters[:, other] - start, axis=-1).mean()
    apart = [
        np.linalg.norm(parameters[a, other] - parameters[b, other])
        for a, b in product(range(len(parameters)), repeat=2)
        if a < b
    ]
    found = {"training": float(moved), "another run": float(np.mean(apart))}
    for place, world in enumerate(WORLDS):
        if world != "other":
            gap = parameters[:, place] - parameters[:, other]
            found[f"{world}, l2"] = float(np.linalg.norm(gap, axis=-1).mean())
            found[f"{world}, largest"] = float(np.abs(gap).max(axis=-1).mean())
            found[f"{world}, shares"] = float(np.abs(shares[:, place] - shares[:, other]).max(axis=-1).mean())
    return found


def train(source: Path, out: Path, *, copies: int, tables: Any, seeds: Any) -> None:
    """Train everything that is not in ``out`` yet."""
    import jax
    import jax.numpy as jnp

    given = dict(np.load(source))
    out.mkdir(parents=True, exist_ok=True)
    for table, (model, causal) in product(tables, VAES.items()):
        file = out / f"{table}-{model}.npz"
        if file.exists():
            continue
        form = json.loads(str(given[f"{table}/form"]))
        if model == "wide":
            vae = wide_network(form["units"], form["columns"], condensed=form["condensed"])
        else:
            vae = network_of(form["units"], form["columns"], causal=causal, condensed=form["condensed"])
        run, start = trainer(vae, given[f"{table}/edges"])
        kept: dict[str, Any] = {}
        facts: dict[str, Any] = {"parameters": int(start.size), "runs": {}}
        for epsilon, seed in product(EPSILONS, seeds):
            began = time.perf_counter()
            rng = np.random.default_rng([SEED, seed, EPSILONS.index(epsilon), *([causal] if model in MODELS else [2])])
            coins = rng.integers(0, 2, copies)  # 0: the target, 1: the other
            worlds = jnp.asarray(np.concatenate([coins, np.tile(np.arange(len(WORLDS)), FOURS)]), jnp.int32)
            # The seed of a key does not know the model: twins of both see the same samples.
            key = jax.random.key(int(np.random.default_rng([SEED, seed]).integers(2**31)))
            for_game, for_fours = jax.random.split(key)
            fours = jax.random.split(for_fours, FOURS)[jnp.repeat(jnp.arange(FOURS), len(WORLDS))]
            keys = jnp.concatenate([jax.random.split(for_game, copies), fours])
            own = {name: given[f"{table}/{seed}/{name}"] for name in ("rows", "queries", "covariances")}
            noise = 0.0 if epsilon == "inf" else float(given[f"noise/{epsilon}"])
            seen, parameters = run(own, worlds, keys, noise=noise)
            four = (FOURS, len(WORLDS), -1)
            record = changes(parameters[copies:].reshape(four), seen["shares"][copies:].reshape(four), start)
            record |= {name: float(seen[name].mean()) for name in ("cov_all", "cov_edges")}
            record |= {"one_way": float(np.abs(seen["shares"] - given[f"{table}/{seed}/shares"]).mean())}
            record |= {"noise": noise, "seconds": time.perf_counter() - began}
            facts["runs"][f"{epsilon}/{seed}"] = record
            kept[f"{epsilon}/{seed}/there"] = coins == 0
            for name in ("ones", "agree"):
                kept[f"{epsilon}/{seed}/{name}"] = seen[name][:copies]
            print(table, model, epsilon, seed, {name: round(value, 4) for name, value in record.items()}, flush=True)
        facts |= {"date": datetime.now(UTC).date().isoformat(), "device": jax.devices()[0].device_kind}
        facts |= {"jax": jax.__version__, "copies": copies}
        np.savez_compressed(file, facts=json.dumps(facts), **kept)


def main() -> None:
    """Train where jax runs."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("source", type=Path, help="what amplification.py --prepare wrote")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--copies", type=int, default=COPIES, help="for each game; half of them teach")
    options.add_argument("--tables", nargs="*", default=list(TABLES))
    options.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    chosen = options.parse_args()
    train(chosen.source, chosen.out, copies=chosen.copies, tables=chosen.tables, seeds=chosen.seeds)


if __name__ == "__main__":
    main()
