"""Attacks: what could somebody who sees synthetic rows find out about one person?

* :func:`attack`: the membership game as a randomised experiment on one record at a time; an :class:`Attack` with formal
  bounds and heuristic figures, beside the ceiling that the guarantee allows (:func:`ceiling_of`);
* :func:`published_game`: the game as it was published, with its faults, and what it measures without any target
  (:class:`PublishedGame`);
* :func:`infer_attribute`: the same experiment on one value of one record (:class:`AttributeGame`);
* ``FEATURES``, ``CLASSIFIERS``, ``ATTACKS``: what attackers look at, how they judge it, and what is tried by default;
* :func:`victim_of`: any generator as something to attack (:class:`Victim`), or several fits of it at once
  (:class:`TrainedTogether`), as escudo's networks on an accelerator; :func:`canary`: a record made up to stand out.

Every figure is about single people in the private rows: for the custodian only.
"""

from escudo.attacks._attack import (
    ATTACKS,
    AttributeGame,
    AttributeOptions,
    PublishedGame,
    PublishedOptions,
    attack,
    every_attack,
    infer_attribute,
    published_game,
)
from escudo.attacks._attacker import CLASSIFIERS, FEATURES, canary, outlyingness
from escudo.attacks._report import (
    Attack,
    AttackedTarget,
    AttributeAttack,
    Ceiling,
    PublishedScore,
    Score,
    ceiling_of,
)
from escudo.attacks._victims import Fitted, TrainedTogether, Victim, victim_of

__all__ = [
    "ATTACKS",
    "CLASSIFIERS",
    "FEATURES",
    "Attack",
    "AttackedTarget",
    "AttributeAttack",
    "AttributeGame",
    "AttributeOptions",
    "Ceiling",
    "Fitted",
    "PublishedGame",
    "PublishedOptions",
    "PublishedScore",
    "Score",
    "TrainedTogether",
    "Victim",
    "attack",
    "canary",
    "ceiling_of",
    "every_attack",
    "infer_attribute",
    "outlyingness",
    "published_game",
    "victim_of",
]
