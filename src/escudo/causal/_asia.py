"""The Asia network, which every installation carries: small, famous, and with a deterministic node."""

from __future__ import annotations

from escudo.causal._network import Network

__all__ = ["asia"]

_YES_NO = ("yes", "no")


def asia() -> Network:
    """Return the chest-clinic network of eight yes/no variables.

    A visit to Asia raises the risk of tuberculosis, smoking that of lung cancer and bronchitis; either of the first two
    shows on an X-ray, and shortness of breath (``dysp``) follows from either or from bronchitis.

    Reference:
        Lauritzen and Spiegelhalter, "Local computations with probabilities on graphical structures and their
        application to expert systems", Journal of the Royal Statistical Society B 50(2), 1988, table 1.

    Example:
        >>> asia().graph.parents("either")
        ('tub', 'lung')
    """
    return Network(
        levels={name: _YES_NO for name in ("asia", "tub", "smoke", "lung", "bronc", "either", "xray", "dysp")},
        parents={
            "tub": ("asia",),
            "lung": ("smoke",),
            "bronc": ("smoke",),
            "either": ("lung", "tub"),
            "xray": ("either",),
            "dysp": ("bronc", "either"),
        },
        tables={
            "asia": [0.01, 0.99],
            "tub": [[0.05, 0.95], [0.01, 0.99]],
            "smoke": [0.5, 0.5],
            "lung": [[0.1, 0.9], [0.01, 0.99]],
            "bronc": [[0.6, 0.4], [0.3, 0.7]],
            "either": [[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]],
            "xray": [[0.98, 0.02], [0.05, 0.95]],
            "dysp": [[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.1, 0.9]]],
        },
    )
