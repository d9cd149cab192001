"""The life of a training that is kept in files: marks, resumes and its one end, so that no copy is released twice.

A checkpoint file is written with a ``mark`` that holds its digest. Only the newest mark can be resumed, only once, and
only before the training is finished; ``resume`` gives a nonce, and later marks and the end must show the newest one. So
of two copies of a file one is refused when it is resumed; and of two runs that are both under way only one can finish,
which it must before its result leaves. A run that ends between resuming and its next mark is lost: going on would draw
the same steps again for nothing, so they are paid for again.

Whoever goes on marks the state that it goes on from once more, at once and under its nonce: a copy of the older file
is worth nothing from then on, and the time in which a crash costs steps is that between two rows.

What is known of a training is kept as JSON beside the account: by the number of its spend, ``mark`` (the newest), its
``digest``, whether it is ``used``, the newest ``nonce``; or null once it is finished.
"""

from __future__ import annotations

import json
import re
from typing import Any

from escudo._validate import whole
from escudo.errors import InputError

MAX_MARKS = 100_000


def marked(known: str, spend: int, number: int, digest: str, nonce: str) -> str:
    """Return what is known after a mark, or raise if it may not be made now."""
    whole("number", number, minimum=1)
    if number > MAX_MARKS:
        raise InputError(f"number must be at most {MAX_MARKS:,}.")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise InputError("digest must be a SHA-256 digest: 64 hexadecimal digits.")
    found = _found(known, spend)
    _require_newest(found, nonce)
    if found and number <= found["mark"]:
        raise InputError(f"The training has checkpoint {found['mark']} already; number must be larger.")
    return _with(known, spend, {"mark": number, "digest": digest, "used": False, "nonce": nonce})


def resumed(known: str, spend: int, number: int, digest: str, nonce: str) -> str:
    """Return what is known after the training goes on from a file, or raise if it may not."""
    found = _found(known, spend)
    if not found:
        raise InputError("The account knows no checkpoint of this training, so it cannot be resumed.")
    if (number, digest) != (found["mark"], found["digest"]):
        raise InputError(
            "The file is not the newest checkpoint of this training: it is older, or another. Going on from it would "
            "release again what was paid for once."
        )
    if found["used"]:
        raise InputError(
            "This checkpoint was resumed before: a copy of it is running, or ended before its next checkpoint. Going "
            "on from it would draw steps again that were paid for once."
        )
    return _with(known, spend, found | {"used": True, "nonce": nonce})


def goes_on(known: str, spend: int, number: int, digest: str) -> bool:
    """Return whether :func:`resumed` would let the training go on from a file."""
    try:
        resumed(known, spend, number, digest, "")
    except InputError:
        return False
    return True


def finished(known: str, spend: int, nonce: str) -> str:
    """Return what is known after the training ended, or raise if it may not end now."""
    _require_newest(_found(known, spend), nonce)
    return _with(known, spend, None)


def _with(known: str, spend: int, found: dict[str, Any] | None) -> str:
    return json.dumps(json.loads(known) | {str(spend): found}, sort_keys=True, separators=(",", ":"))


def _found(known: str, spend: int) -> dict[str, Any]:
    """Return what is known of a training; nothing if it has no mark yet."""
    found = json.loads(known).get(str(spend), {})
    if found is None:
        raise InputError("The training is finished: its one result was handed out, and going on would make another.")
    return dict(found)


def _require_newest(found: dict[str, Any], nonce: str) -> None:
    if nonce != found.get("nonce", ""):
        raise InputError("The training was resumed elsewhere: only the run that was resumed last may go on.")
