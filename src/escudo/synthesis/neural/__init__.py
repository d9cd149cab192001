"""Neural generators that follow a causal graph, trained by DP-SGD.

* ``_network``: a row as features, p(z) ∏ p(xᵢ | paᵢ, z) and q(z | x) with masked layers, and which network a schema and
  a graph ask for; it needs only jax and numpy;
* ``_generator``: the generators :class:`Vae` and :class:`Autoregressive`, and their options;
* ``_training``: the fit: how long and how loudly to train, where a training starts, and a folder that a stopped fit
  goes on from, and pays once;
* ``_model``: :class:`NeuralModel`, what is released;
* ``_many``: many trainings at once, for shadow models; :func:`begin` and :func:`finish`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from escudo.synthesis.neural._generator import Autoregressive as Autoregressive
    from escudo.synthesis.neural._generator import Vae as Vae
    from escudo.synthesis.neural._many import begin as begin
    from escudo.synthesis.neural._many import finish as finish
    from escudo.synthesis.neural._many import on_accelerator as on_accelerator
    from escudo.synthesis.neural._model import NeuralModel as NeuralModel
    from escudo.synthesis.neural._model import read_model as read_model
    from escudo.synthesis.neural._training import PreparedNeural as PreparedNeural

__all__ = ["Autoregressive", "NeuralModel", "Vae", "begin", "finish", "on_accelerator"]

# What is not in __all__ is for other parts of escudo.
_HOME = {
    "Autoregressive": "_generator",
    "NeuralModel": "_model",
    "PreparedNeural": "_training",
    "Vae": "_generator",
    "begin": "_many",
    "finish": "_many",
    "on_accelerator": "_many",
    "read_model": "_model",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"escudo.synthesis.neural.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'escudo.synthesis.neural' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
