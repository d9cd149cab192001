"""The studio: the whole journey in a browser, on the custodian's own machine (``escudo studio``).

It holds no logic of its own. Pages ask the same questions as the command line, and long work *is* the command line, in
a process of its own. What a custodian has said so far lies in a private folder as the files that ``escudo release``
takes: a schema, a graph, a configuration.

* ``_case.py``: the table, schema, graph and budget that are being worked on, and the commands that follow from them;
* ``_work.py``: long work, in processes that outlive a tab and can be cancelled;
* ``_door.py``: who may ask: this machine, this browser, this page; nothing else;
* ``_journey.py``: table, causes, budget, release; ``_rooms.py``: what if, accounts, audits, attacks;
* ``_server.py``: all of it as one application, and how it is started.
"""

from escudo.studio._server import Opening, serve

__all__ = ["Opening", "serve"]
