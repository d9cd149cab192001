"""The chaos suite: faults of every kind, at every gap, while accounts are in use; ``make chaos N=10000``.

A warm process forks a child for each fault. The child does what users do (a spend, a release, a training resumed, an
audit with a log) while a tracer counts what happens: calls and returns of the functions that keep accounts and write
releases, and the calls they make to the system and to the database. The fault strikes at one of these events, drawn
from the seed, so that every gap between two steps is hit and a failure can be repeated.

* ``faults``: what may go wrong, and the tracer that makes it go wrong at one event;
* ``children``: forking, and what children tell before they die;
* ``stores``: the ledger's file or database, and what may happen to it behind escudo's back;
* ``stage``: what a world is, and what must hold in all of them whatever went wrong;
* ``ledgers``, ``releases``, ``audits``: the worlds;
* ``broken``: ledgers that are wrong on purpose, which the suite must catch;
* ``__main__``: many faults, counted.

What must hold after each fault: no spend that was acknowledged is lost, or the loss is noticed; nothing comes out that
is not charged; no cap is passed; a release is whole or absent; ``verify`` is right; the ledger can be used; and what
goes wrong is said in words.
"""
