"""Train the VAE of ``dpsgd.py`` with another library; run by it with the Python of another environment.

    python peer_dpsgd.py METHOD BATCH STEPS

METHOD is ``hooks`` or ``ghost`` (Opacus), or ``jax-privacy``. Prints steps per second of processor time, and memory, as
JSON. The network, the rows, clip norm 1, noise multiplier 1, Adam and Poisson samples are those of ``dpsgd.py``.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np

ROWS, WIDTH, FIRST, SECOND, LATENT = 50_000, 222, 128, 64, 10
RATE, CLIP, NOISE = 1e-3, 1.0, 1.0


def rows() -> np.ndarray:
    return (np.random.default_rng(0).random((ROWS, WIDTH)) < 0.1).astype(np.float32)


def opacus(method: str, batch: int, steps: int) -> float:
    import torch
    from opacus import PrivacyEngine
    from torch import nn
    from torch.nn.functional import softplus
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Vae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(WIDTH, FIRST), nn.ReLU(), nn.Linear(FIRST, SECOND), nn.ReLU())
            self.mean, self.spread = nn.Linear(SECOND, LATENT), nn.Linear(SECOND, LATENT)
            self.decode = nn.Sequential(
                nn.Linear(LATENT, SECOND), nn.ReLU(), nn.Linear(SECOND, FIRST), nn.ReLU(), nn.Linear(FIRST, WIDTH)
            )

        def forward(self, x):  # type: ignore[no-untyped-def]
            hidden = self.encode(x)
            mean, spread = self.mean(hidden), self.spread(hidden)
            return self.decode(mean + torch.exp(spread / 2) * torch.randn_like(mean)), mean, spread

    class Loss(nn.Module):
        reduction = "mean"

        def forward(self, made, x):  # type: ignore[no-untyped-def]
            score, mean, spread = made
            each = (softplus(score) - x * score).sum(-1) + 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(-1)
            return each if self.reduction == "none" else each.mean()

    data = torch.from_numpy(rows())
    module, loss = Vae(), Loss()
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    loader = DataLoader(TensorDataset(data), batch_size=batch)
    engine = PrivacyEngine()
    made = engine.make_private(
        module=module,
        optimizer=optimizer,
        criterion=loss,
        data_loader=loader,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        grad_sample_mode=method,
    )
    if method == "ghost":
        module, optimizer, loss, _ = made
    else:
        module, optimizer, _ = made

    def step() -> None:
        x = data[torch.rand(ROWS) < batch / ROWS]  # Poisson, without the loader's own overhead
        optimizer.zero_grad()
        loss(module(x), x).backward()
        optimizer.step()

    for _ in range(5):
        step()
    start = time.process_time()
    for _ in range(steps):
        step()
    return steps / (time.process_time() - start)


def jax_privacy(batch: int, steps: int) -> float:
    import jax
    import jax.numpy as jnp
    import optax
    from jax_privacy import clipping

    rng = np.random.default_rng(1)
    sizes = {
        "e1": (WIDTH, FIRST), "e2": (FIRST, SECOND), "mean": (SECOND, LATENT), "spread": (SECOND, LATENT),
        "d1": (LATENT, SECOND), "d2": (SECOND, FIRST), "d3": (FIRST, WIDTH),
    }  # fmt: skip
    parameters = {
        name: (jnp.asarray(rng.normal(size=size) * 0.05, jnp.float32), jnp.zeros(size[1]))
        for name, size in sizes.items()
    }
    data = jnp.asarray(rows())
    capacity = int(np.ceil(batch + 2.5 * np.sqrt(batch)))
    optimizer = optax.adam(RATE)

    def loss(tree, x, key):  # type: ignore[no-untyped-def]
        def dense(name, x):  # type: ignore[no-untyped-def]
            return x @ tree[name][0] + tree[name][1]

        hidden = jax.nn.relu(dense("e2", jax.nn.relu(dense("e1", x))))
        mean, spread = dense("mean", hidden), dense("spread", hidden)
        z = mean + jnp.exp(spread / 2) * jax.random.normal(key, mean.shape)
        score = dense("d3", jax.nn.relu(dense("d2", jax.nn.relu(dense("d1", z)))))
        return (jax.nn.softplus(score) - x * score).sum() + 0.5 * (mean**2 + jnp.exp(spread) - 1 - spread).sum()

    clipped = clipping.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=1, normalize_by=batch)

    def step(state, slot):  # type: ignore[no-untyped-def]
        tree, memory = state
        places, key = slot
        own, noise = jax.random.split(jax.random.wrap_key_data(key))
        gradient = clipped(tree, data[places], own)
        leaves, form = jax.tree_util.tree_flatten(gradient)
        keys = jax.random.split(noise, len(leaves))
        noisy = [
            leaf + NOISE * CLIP / batch * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)
        ]
        updates, memory = optimizer.update(jax.tree_util.tree_unflatten(form, noisy), memory)
        return (optax.apply_updates(tree, updates), memory), None

    run = jax.jit(lambda state, slots: jax.lax.scan(step, state, slots)[0])

    def slots() -> tuple[np.ndarray, np.ndarray]:
        places = rng.integers(0, ROWS, (steps, capacity)).astype(np.int32)
        return places, rng.integers(0, 2**32, (steps, 2), dtype=np.uint32)

    state = parameters, optimizer.init(parameters)
    jax.block_until_ready(run(state, slots()))
    start = time.process_time()
    jax.block_until_ready(run(state, slots()))
    return steps / (time.process_time() - start)


def main() -> None:
    method, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rate = jax_privacy(batch, steps) if method == "jax-privacy" else opacus(method, batch, steps)
    print(json.dumps({"rate": rate, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
