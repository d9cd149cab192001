"""Audit a service from outside: a noisy count behind HTTP, on this machine, that forgets its noise on an error path.

The service adds proper Laplace noise, but refuses tables with a negative entry by an error: whether somebody's entry is
negative can be read off the status alone. Errors are outputs, so that the audit sees it.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from escudo.auditing import audit
from escudo.privacy import Guarantee

NOISE = np.random.default_rng(1)


class Count(BaseHTTPRequestHandler):
    """Answers a table with a noisy sum, clamped to [0, 1] for each entry."""

    def do_POST(self) -> None:
        """Answer one request."""
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["dataset"]
        refused = min(rows) < 0
        answer = b"negative entry" if refused else str(round(sum(rows) + NOISE.laplace(), 3)).encode()
        self.send_response(422 if refused else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Count)
thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
thread.start()
try:
    found = audit(
        target=f"http://127.0.0.1:{server.server_port}/",
        claim=Guarantee(epsilon=1.0),
        pairs=[([0.5, 0.5], [0.5, -0.5])],
        seed=1,
        max_runs=400,
    )
finally:
    server.shutdown()
    thread.join()
    server.server_close()
print(found)
print("  witness:", found.witness)
for note in found.notes:
    print("  note:", note)
assert found.violated
