"""Reports: one self-contained HTML page each, with inline pictures, that prints and works offline.

* :func:`render` and :func:`write`: the page that every kind of report shares;
* :func:`effects_page`: all effects of a model on its outputs;
* :func:`effects_picture`: its diagram, with ε on the arrows;
* :func:`ledger_page`: what all releases of a dataset together can change.
"""

from __future__ import annotations

from escudo.report._effects import effects_page, effects_picture, ledger_page
from escudo.report._page import render, write

__all__ = ["effects_page", "effects_picture", "ledger_page", "render", "write"]
