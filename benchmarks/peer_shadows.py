"""Train the VAE of ``shadows.py`` and ``shadows_device.py`` with Opacus, one model after another, as shadow models are.

    python peer_shadows.py METHOD DEVICE STEPS

METHOD is ``hooks`` or ``ghost``, DEVICE ``cpu`` or ``cuda``; run with a Python that has ``opacus==1.6.0`` and PyTorch.
Prints steps per second by the clock and by processor time, as JSON. The network is 222-128-64-(10, 10)-64-128-222, the
samples are Poisson, 100 of 5,000 rows on average; clip norm 1, noise multiplier 1, Adam at 0.001.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, TensorDataset

ROWS, WIDTH, BATCH = 5000, 222, 100
WARM = 20


class Vae(nn.Module):
    """The plain VAE."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.mean, self.spread = nn.Linear(64, 10), nn.Linear(64, 10)
        self.decode = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, WIDTH))

    def forward(self, x):  # noqa: D102  # type: ignore[no-untyped-def]
        hidden = self.encode(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        return self.decode(mean + torch.exp(spread / 2) * torch.randn_like(mean)), mean, spread


class Loss(nn.Module):
    """Minus the evidence lower bound."""

    reduction = "mean"

    def forward(self, made, x):  # noqa: D102  # type: ignore[no-untyped-def]
        score, mean, spread = made
        each = (softplus(score) - x * score).sum(-1) + 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(-1)
        return each if self.reduction == "none" else each.mean()


def main() -> None:
    method, device, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = (np.random.default_rng(0).random((ROWS, WIDTH)) < 0.1).astype(np.float32)
    data = torch.from_numpy(rows).to(device)
    module, loss = Vae().to(device), Loss()
    made = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.Adam(module.parameters(), lr=1e-3),
        criterion=loss,
        data_loader=DataLoader(TensorDataset(data), batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=method,
    )
    if method == "ghost":
        module, optimizer, loss, _ = made
    else:
        module, optimizer, _ = made

    def step() -> None:
        x = data[torch.rand(ROWS, device=device) < BATCH / ROWS]  # Poisson, without the loader's own overhead
        optimizer.zero_grad()
        loss(module(x), x).backward()
        optimizer.step()

    def now() -> tuple[float, float]:
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()

    for _ in range(WARM):
        step()
    began = now()
    for _ in range(steps):
        step()
    clock, processor = (after - before for before, after in zip(began, now(), strict=True))
    print(json.dumps({"steps_per_second": steps / clock, "steps_per_cpu_second": steps / processor}))


if __name__ == "__main__":
    main()
