"""A service behind HTTP as a mechanism: one POST for each run, and nothing that could bias the experiment.

What makes a service different from a function, and what is done about it:

* It drifts, so each run's dataset is drawn at random; the audit does that, one call at a time.
* It refuses, fails and times out: those are outputs, as is the time an answer took. A call ends at its deadline,
  however the service spends the time, and an answer is read up to a largest size: of a longer one, the output is that
  it is longer.
* One run is one call. A refused call is not repeated within the run, because the claim is about one call: what two of
  them say together may be 2ε-private only, and a private service would be accused. When it asks for time (429, or 503
  with ``Retry-After``), or no answer came at all, the *next* run waits.
* It may answer from a cache, or seed its noise by the question. What holds for all mechanisms holds here: where answers
  repeat, new questions are asked instead (:mod:`escudo.auditing._pairs`). An answer that says that it comes from a
  cache (``Age``, ``X-Cache``, ``CF-Cache-Status``) does not count at all.
* Every call costs privacy: n calls of an ε-private service are nε-private at best.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from escudo._validate import positive, positive_integer
from escudo.auditing._outputs import parsed
from escudo.auditing._targets import Reply, Uncounted, Unreachable
from escudo.errors import InputError

_SILENT = 4
"""A service that does not answer so many calls at the start is not there."""
_REFUSED = 8
"""A service that refuses so many calls at the start, each after the time it asked for, refuses all."""
_LONGEST_WAIT = 300.0
_LARGEST = 1_000_000
_LONGEST_SILENCE = 5.0
"""Seconds to wait, at most, after a call that nobody answered."""


@dataclass(slots=True)
class _Reply:
    status: int
    body: Any
    seconds: float
    cached: bool


class HttpTarget:
    """A service that takes a dataset by POST and answers with a noisy result.

    The body sent is ``{"dataset": ...}`` as JSON. Each output is a dictionary: ``value`` (JSON or text),
    ``status`` (0 if none came), which is what kind of output it is, and ``seconds``. Requests go to the stated address
    and nowhere else: redirects are outputs, and proxies are not asked.

    Attributes:
        calls: Requests made so far: each may have cost the service's ε.
        cached: Answers that came from a cache by their own account, and did not count.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        encode: Callable[[Any], Any] | None = None,
        timeout: float = 30.0,
        largest_answer: int = _LARGEST,
        calls_per_second: float | None = None,
        clock: Any = time,
    ) -> None:
        """Take the service at ``url``.

        Args:
            url: Where to POST; http or https. A user and password go into ``headers``.
            headers: Sent with every request, such as a key.
            encode: From a dataset to the JSON that is sent; by default ``{"dataset": dataset}``.
            timeout: Seconds for a whole call, from connecting to the last byte; what takes longer is no answer.
            largest_answer: The most bytes of an answer that are read; of a longer one, the output is that it is longer.
            calls_per_second: The most requests a second; by default as fast as the service answers.
            clock: Waits and tells the time, as the module :mod:`time` does; for tests.

        Raises:
            InputError: If the address is not http or https, or holds a password.
        """
        self._where = _Where.of(url)
        self.url = url
        self.calls = 0
        self.cached = 0
        self._headers = {
            "Host": self._where.name,
            "Connection": "close",
            "Content-Type": "application/json",
            "Cache-Control": "no-store",
            **(headers or {}),
        }
        self._encode = encode or (lambda dataset: {"dataset": dataset})
        self._timeout = positive("timeout", timeout, at_most=threading.TIMEOUT_MAX)
        self._largest = positive_integer("largest_answer", largest_answer)
        rate = None if calls_per_second is None else positive("calls_per_second", calls_per_second)
        self._pause = 0.0 if rate is None else 1 / rate
        self._clock = clock
        self._lock = threading.Lock()  # several calls may be made at a time
        self._next = 0.0
        self._refused = 0  # calls in a row
        self._statuses: Counter[int] = Counter()

    def __call__(self, dataset: Any, rng: np.random.Generator) -> dict[str, Any]:
        """Return one output of the service on ``dataset``.

        Raises:
            Uncounted: If the answer comes from a cache, by its own account.
            Unreachable: If nobody answers, or every call is refused, from the first on.
        """
        reply = self._ask(json.dumps(self._encode(dataset), sort_keys=True, default=_plain))
        where = self.url.partition("?")[0]
        if self.calls == self._statuses[0] == _SILENT:
            raise Unreachable(f"nobody answers at {where}. Is the address right, and the service up?")
        if self.calls == self._refused == _REFUSED:
            raise Unreachable(
                f"{where} refused all of {_REFUSED} calls, each after the time that it asked for. Call it less often "
                "(calls_per_second, --rate), or ask whoever runs it to let the audit in."
            )
        if reply.cached:
            self.cached += 1
            raise Uncounted("the service answers from a cache.")
        return Reply(seconds=reply.seconds, status=reply.status, value=reply.body)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the audit must know about the service, one sentence each."""
        said = [
            f"{self.calls:,} calls were made: if one call is ε-private, all of them together are only "
            f"{self.calls:,}·ε-private."
        ]
        if self.calls and not any(200 <= status < 300 for status in self._statuses):
            seen = ", ".join(f"status {status}" for status in sorted(self._statuses))
            said.append(f"No call was answered ({seen}): are the address, the headers and the form of the data right?")
        elif self.cached:
            said.append(f"{self.cached:,} answers came from a cache, by their own account, and were not counted.")
        return tuple(said)

    def _ask(self, question: str) -> _Reply:
        """Send a question once; how long to wait before the next one is decided without looking at the body."""
        self._wait_turn()
        start = self._clock.perf_counter()
        status, headers, data = self._send(question.encode())
        now = self._clock.perf_counter()
        with self._lock:
            self.calls += 1
            wait = _asked_to_wait(status, headers, self._refused)
            self._refused = 0 if wait is None else self._refused + 1
            self._statuses[status] += 1
            if wait is not None:
                self._next = max(self._next, now + wait)
        return _Reply(status, self._body(data), now - start, _names_a_cache(headers))

    def _body(self, data: bytes) -> Any:
        if len(data) > self._largest:
            return f"(an answer of more than {self._largest:,} bytes)"
        return parsed(data.decode("utf-8", errors="replace"))

    def _wait_turn(self) -> None:
        with self._lock:
            now = self._clock.perf_counter()
            turn = max(now, self._next)
            self._next = turn + self._pause
        if now < turn:
            self._clock.sleep(turn - now)

    def _send(self, body: bytes) -> tuple[int, Message, bytes]:
        """Return status, headers and body of one request; status 0 when no whole answer came in time."""
        import http.client

        late = threading.Event()
        status, headers = 0, Message()
        try:
            with _connection(self._where, time.monotonic() + self._timeout, late) as line:
                connection = http.client.HTTPConnection(self._where.host, self._where.port)
                connection.sock = line
                connection.request("POST", self._where.path, body, self._headers)
                answer = connection.getresponse()
                status, headers = answer.status, answer.headers
                data = answer.read(self._largest + 1)
                if answer.length and len(data) <= self._largest:
                    raise http.client.IncompleteRead(data)
            if late.is_set():  # a body without a length ends where the line was cut
                raise TimeoutError
        except (OSError, http.client.HTTPException):  # refused, reset, timed out, cut short
            return (status, headers, b"") if status >= 300 else (0, Message(), b"")
        return status, headers, data


class _Where(NamedTuple):
    """An address, taken apart."""

    secure: bool
    name: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> _Where:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(url)
            if parts.username is not None or parts.password is not None:
                raise InputError("a service's address must not hold a user or password; send them in a header.")
            scheme, host, port = parts.scheme, parts.hostname, parts.port
        except InputError:
            raise
        except ValueError:  # such as a port that is no number
            scheme, host, port = "", None, None
        if scheme not in ("http", "https") or not host:
            raise InputError("a service's address must start with http:// or https:// and name a host.")
        secure = scheme == "https"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise InputError("a service's address must be plain text without spaces; write other characters as %XX.")
        return cls(secure, parts.netloc, host, port or (443 if secure else 80), path)


@contextmanager
def _connection(where: _Where, deadline: float, late: threading.Event) -> Iterator[Any]:
    """Give a line to the service that is cut at the deadline, whatever it is doing then, and say so in ``late``.

    A socket's own timeout starts anew with every byte, so that a service that sends one now and then holds the line for
    ever. Here a second thread shuts the socket down at the deadline, which ends the call that waits on it. (Looking up
    the host's name is left to the system, which has limits of its own.)
    """
    import socket
    import ssl

    def left() -> float:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    failed: OSError = TimeoutError()
    for family, kind, protocol, _, address in socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM):
        line = socket.socket(family, kind, protocol)
        try:
            line.settimeout(left())
            line.connect(address)
            break
        except OSError as error:
            line.close()
            failed = error
    else:
        raise failed
    if where.secure:
        line = _certificates().wrap_socket(line, server_hostname=where.host, do_handshake_on_connect=False)

    def cut() -> None:
        late.set()
        with suppress(OSError):  # by then it may be closed
            socket.socket.shutdown(line, socket.SHUT_RDWR)  # not that of TLS, which is no business of this thread

    with line:
        timer = threading.Timer(left(), cut)
        timer.daemon = True
        timer.start()
        try:
            if isinstance(line, ssl.SSLSocket):
                line.do_handshake()
            yield line
        finally:
            timer.cancel()


@cache
def _certificates() -> Any:
    import ssl

    return ssl.create_default_context()


def _asked_to_wait(status: int, headers: Message, refused: int) -> float | None:
    """Return how long to wait before the next call, longer after several refusals in a row; None after an answer."""
    stated = headers.get("Retry-After")
    if status == 429 or (status == 503 and stated is not None):
        return min(_seconds(stated, otherwise=2.0 ** min(refused, 20)), _LONGEST_WAIT)
    return min(0.2 * 2.0 ** min(refused, 20), _LONGEST_SILENCE) if status == 0 else None


def _seconds(stated: str | None, *, otherwise: float) -> float:
    """Return a Retry-After header in seconds: a number or a date."""
    if stated is None:
        return otherwise
    try:
        return max(float(stated), 0.0)
    except ValueError:
        pass
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        return max((parsedate_to_datetime(stated) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return otherwise


def _names_a_cache(headers: Message) -> bool:
    hit = "hit" in (headers.get("X-Cache") or "").lower() or "hit" in (headers.get("CF-Cache-Status") or "").lower()
    return hit or (headers.get("Age") or "0").strip() not in ("", "0")


def _plain(value: Any) -> Any:
    """Return numpy values as JSON can hold them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise InputError("a dataset sent to a service must be plain JSON: numbers, text, lists and dictionaries.")
