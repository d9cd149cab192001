"""Neural generators that follow a causal graph, trained by DP-SGD.

* ``_columns``: a row as features, and the likelihood of each kind of column;
* ``_network``: p(z) ∏ p(xᵢ | paᵢ, z) and q(z | x), with masked layers; both import only jax and numpy;
* ``_units``: which columns are modelled together, given which others, as a graph says;
* ``_rules``: how long and how loudly to train, from public facts;
* ``_start``: where a training starts: a model fitted with a share of the budget, and rows simulated from it;
* ``_generator``: the generators :class:`Vae` and :class:`Autoregressive`; ``_prepared``: their fit; ``_model``:
  :class:`NeuralModel`, what is released;
* ``_checkpoint``: a folder that a stopped fit goes on from, and pays once;
* ``_many``: many trainings at once, for shadow models; :func:`begun` and :func:`finished`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from escudo.synthesis.neural._generator import Autoregressive as Autoregressive
    from escudo.synthesis.neural._generator import Vae as Vae
    from escudo.synthesis.neural._many import begun as begun
    from escudo.synthesis.neural._many import finished as finished
    from escudo.synthesis.neural._many import on_accelerator as on_accelerator
    from escudo.synthesis.neural._model import NeuralModel as NeuralModel

__all__ = ["Autoregressive", "NeuralModel", "Vae", "begun", "finished", "on_accelerator"]

_HOME = {
    "Autoregressive": "_generator",
    "NeuralModel": "_model",
    "Vae": "_generator",
    "begun": "_many",
    "finished": "_many",
    "on_accelerator": "_many",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"escudo.synthesis.neural.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'escudo.synthesis.neural' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
