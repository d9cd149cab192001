"""Reports: one self-contained HTML page each, with inline pictures, that prints and works offline.

* :func:`render` and :func:`write`: the page that every kind of report shares;
* :func:`effects_page`: all effects of a model on its outputs;
* :func:`effects_picture`: its diagram, with ε on the arrows;
* :func:`ledger_page`: what all releases of a dataset together can change;
* :func:`write_release`: a release folder, with :func:`release_page` for people and ``release.json``
  (:func:`release_schema`) for machines; :func:`check_target`: whether it can be written, before anything is spent;
* :func:`custodian_page`: synthetic against real data; :func:`evaluation_page`: what can be learnt from them. Both are
  for the custodian only.
"""

from __future__ import annotations

from escudo.report._custodian_page import custodian_page
from escudo.report._effects import effects_page, effects_picture, ledger_page
from escudo.report._evaluation_page import evaluation_page
from escudo.report._page import render, write
from escudo.report._record import release_schema
from escudo.report._release import ReleaseFiles, check_target, write_release
from escudo.report._release_page import release_page

__all__ = [
    "ReleaseFiles",
    "check_target",
    "custodian_page",
    "effects_page",
    "effects_picture",
    "evaluation_page",
    "ledger_page",
    "release_page",
    "release_schema",
    "render",
    "write",
    "write_release",
]
