"""Who may ask: this machine, one browser, and pages of the studio's own.

* **Host** must be the address that the studio serves: a name that somebody re-pointed at this machine (DNS rebinding)
  is turned away.
* A **token**, good for one visit, is in the address that is opened first. It becomes a cookie that scripts cannot read
  and that no other site can have sent along (``HttpOnly``, ``SameSite=Strict``).
* What changes something must come from a page of the studio's own: its **Origin** is checked, and so is what the
  browser says about where a request began (``Sec-Fetch-Site``).
* Every answer has a **content security policy** without inline script, and is kept by no cache. Nothing is loaded from
  elsewhere, shown inside another page, or said to another site.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

COOKIE = "escudo-studio"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OPENED = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>escudo studio</title>
<meta http-equiv="refresh" content="0;url=/"></head><body><p><a href="/">Open the studio</a></p></body></html>"""


class Door:
    """Lets in whom it should.

    Args:
        origin: Where the studio is served, such as ``http://127.0.0.1:8642``.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.token: str | None = secrets.token_urlsafe(32)
        self._secret = secrets.token_urlsafe(32)
        self._scheme, _, self._host = origin.partition("://")
        name, colon, port = self._host.rpartition(":")
        self._hosts = {self._host, f"localhost{colon}{port}"} if name == "127.0.0.1" else {self._host}

    async def __call__(self, request: Request, onwards: Callable[[Request], Awaitable[Response]]) -> Response:
        """Answer a request, or turn it away."""
        response = self._turned_away(request) or await onwards(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    def _turned_away(self, request: Request) -> Response | None:
        from starlette.responses import HTMLResponse, PlainTextResponse

        def refuse(why: str) -> Response:
            return PlainTextResponse(f"{why}\n", status_code=403)

        host = request.headers.get("host", "")
        if host not in self._hosts:
            return refuse("This is not the address of the studio.")
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return refuse("Only pages of the studio may ask this.")
        if request.method not in ("GET", "HEAD") and request.headers.get("origin") != f"{self._scheme}://{host}":
            return refuse("Only pages of the studio may ask this.")
        if request.url.path == "/open" and request.method == "GET":
            given = request.query_params.get("token", "").encode()  # texts beyond ASCII cannot be compared as they are
            if self.token is None or not secrets.compare_digest(given, self.token.encode()):
                return refuse("This address was used already. Start 'escudo studio' again for a new one.")
            self.token = None
            response = HTMLResponse(_OPENED)
            response.set_cookie(
                COOKIE, self._secret, httponly=True, samesite="strict", secure=self._scheme == "https", path="/"
            )
            return response
        if not secrets.compare_digest(request.cookies.get(COOKIE, "").encode(), self._secret.encode()):
            return refuse("Open the address that 'escudo studio' printed: it lets one browser in.")
        return None
