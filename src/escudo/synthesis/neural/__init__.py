"""Neural generators that follow a causal graph, trained by DP-SGD.

* ``_network``: a row as features, p(z) ∏ p(xᵢ | paᵢ, z) and q(z | x) with masked layers, and which network a schema and
  a graph ask for; it needs only jax and numpy;
* ``_training``: the generators :class:`Vae` and :class:`Autoregressive`, and their fit; ``_start``: how long and how
  loudly to train, and where a training starts; ``_joint``: graph and network together; ``_checkpoint``: a folder that a
  stopped fit goes on from, and pays once;
* ``_model``: :class:`NeuralModel`, what is released;
* ``_many``: many trainings at once, for shadow models; :func:`begin` and :func:`finish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from escudo.synthesis.neural._checkpoint import Checkpoint as Checkpoint
    from escudo.synthesis.neural._many import begin, finish, on_accelerator
    from escudo.synthesis.neural._model import NeuralModel
    from escudo.synthesis.neural._model import read_model as read_model
    from escudo.synthesis.neural._training import Autoregressive, Vae
    from escudo.synthesis.neural._training import PreparedNeural as PreparedNeural
    from escudo.synthesis.neural._training import PreparedUnprotected as PreparedUnprotected

__all__ = ["Autoregressive", "NeuralModel", "Vae", "begin", "finish", "on_accelerator"]

# What is not in __all__ is for other parts of escudo.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "_many": ["begin", "finish", "on_accelerator"],
        "_model": ["NeuralModel", "read_model"],
        "_checkpoint": ["Checkpoint"],
        "_training": ["Autoregressive", "PreparedNeural", "PreparedUnprotected", "Vae"],
    },
)
