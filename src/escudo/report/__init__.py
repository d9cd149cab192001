"""Reports: one self-contained HTML page each, with inline pictures, that prints and works offline.

* :func:`render` and :func:`write`: the page that every kind of report shares; :func:`check_page`: whether it can be
  written, before it is made;
* :func:`effects_page`: all effects of a model on its outputs;
* :func:`effects_picture`: its diagram, with ε on the arrows;
* :func:`audit_page`, :func:`direction_page`, :func:`discovery_page`, :func:`treatment_page`: one answer each;
* :func:`suite_page`: many audits;
* :func:`ledger_page`: what all releases of a dataset together can change;
* :func:`write_release`: a release folder, with :func:`release_page` for people and ``release.json``
  (:func:`release_schema`) for machines, both with :func:`warnings_of` it; :func:`check_target`: whether it can be
  written, before anything is spent;
* :class:`LinkedWriting`: a release folder of linked tables, with :func:`linked_page`;
* :func:`explore_page`: what if, asked of a model in a browser, where it is :func:`explorable`;
* :func:`custodian_page`: synthetic against real data; :func:`evaluation_page`: what can be learnt from them;
  :func:`attack_page`: what an attacker could learn. These are for the custodian only;
* :func:`custodian_report`: the custodian's own copy of a release's report, with what was evaluated and attacked;
  :func:`check_custodian_report`: whether it can be written, before that is worked out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from escudo.report._causal_pages import direction_page, discovery_page, treatment_page
    from escudo.report._custodian import attack_page, custodian_page, evaluation_page
    from escudo.report._effect_pages import audit_page, effects_page, effects_picture, ledger_page, suite_page
    from escudo.report._explore import MOST_COLUMNS, explorable, explore_page, explored
    from escudo.report._explore import why_not_explorable as why_not_explorable
    from escudo.report._linked_release import LinkedReleaseFiles, LinkedWriting, linked_page
    from escudo.report._look import column_cards as column_cards
    from escudo.report._page import check_page, is_report, render, write
    from escudo.report._page import promise_sentence as promise_sentence  # for the studio; not documented, as below
    from escudo.report._page import prose as prose
    from escudo.report._page import source_of as source_of
    from escudo.report._page import who_gets_what as who_gets_what
    from escudo.report._release_folder import (
        ReleaseFiles,
        ReleaseWriting,
        WriteOptions,
        check_custodian_report,
        check_target,
        custodian_report,
        write_release,
    )
    from escudo.report._release_report import release_page, release_schema, warnings_of
else:  # loaded on first use: a page needs little, and the next one other things
    __getattr__, __dir__, __all__ = lazy_loader.attach(
        __name__,
        submod_attrs={
            "_causal_pages": ["direction_page", "discovery_page", "treatment_page"],
            "_custodian": ["attack_page", "custodian_page", "evaluation_page"],
            "_effect_pages": ["audit_page", "effects_page", "effects_picture", "ledger_page", "suite_page"],
            "_explore": ["MOST_COLUMNS", "explorable", "explore_page", "explored", "why_not_explorable"],
            "_look": ["column_cards"],
            "_page": [
                "check_page",
                "is_report",
                "promise_sentence",
                "prose",
                "render",
                "source_of",
                "who_gets_what",
                "write",
            ],
            "_linked_release": ["LinkedReleaseFiles", "LinkedWriting", "linked_page"],
            "_release_folder": [
                "ReleaseFiles",
                "ReleaseWriting",
                "WriteOptions",
                "check_custodian_report",
                "check_target",
                "custodian_report",
                "write_release",
            ],
            "_release_report": ["release_page", "release_schema", "warnings_of"],
        },
    )
