"""Neighbours see the same world: two tables that differ in one row or person, told apart by paid-for noise alone.

``tables`` and ``files`` make neighbours, ``verbs`` is everything that can be asked of a table, ``worlds`` runs a
question on both and compares all that can be seen, ``search`` chooses pairs, ``promises`` are what no pair shows, and
``mutations`` puts known defects back. ``python -m neighbours --help`` runs many pairs.
"""
