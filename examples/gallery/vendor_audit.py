# %% [markdown]
# # Auditing a vendor's service
# A vendor sells noisy counts and claims ε = 1. Their service is called from outside, on made-up rows. The one below
# halves its noise, a common slip.

# %%
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

import escudo
from escudo.auditing import audit

noise = np.random.default_rng(5)


class Vendor(BaseHTTPRequestHandler):
    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["dataset"]
        stop = 1 - np.exp(-2.0)  # for ε = 1 it would be 1 - exp(-1)
        answer = json.dumps({"count": int(sum(rows) + noise.geometric(stop) - noise.geometric(stop))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


service = ThreadingHTTPServer(("127.0.0.1", 0), Vendor)
threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

# %% [markdown]
# Every run flips a coin between two neighbouring datasets and bets on which one was asked. Nobody needs to know how
# the service works.

# %%
claim = escudo.Guarantee(epsilon=1.0, relation="add_remove")
address = f"http://127.0.0.1:{service.server_port}/"
found = audit(target=address, claim=claim, pairs=[([1, 0], [1, 0, 1])], seed=1, max_runs=1500, progress=False)
service.shutdown()
service.server_close()
print(found.verdict.split(" (")[0])
print(found.witness)
assert found.violated
