"""Children that are forked, suffer a fault, and tell what they were told before they die."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.faults import Disk, Fault, Tracer, strike

__all__ = ["Act", "Outcome", "Tell", "perform"]

PATIENCE = 600.0
"""Seconds after which a child counts as hanging."""

Tell = Callable[..., None]
Act = Callable[[Tell], int]
"""What a child does: it tells what happened, and returns its exit code."""


@dataclass(slots=True)
class Outcome:
    """What is known of a child after its end.

    Attributes:
        told: What it told, in order; all of it happened.
        struck: Whether its fault happened.
        status: Its exit code, or minus the signal that ended it.
        events: How often each event happened, if it came to its end.
        hung: Whether it had to be ended.
    """

    told: list[dict[str, Any]] = field(default_factory=list)
    struck: bool = False
    status: int = 0
    events: dict[str, int] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    hung: bool = False

    def all(self, key: str) -> list[Any]:
        """Return everything that was told under one name."""
        return [entry[key] for entry in self.told if key in entry]

    @property
    def killed(self) -> bool:
        """Whether a signal ended it, so that it could not clean up."""
        return self.status < 0


@dataclass(slots=True)
class _Child:
    pid: int
    told: int
    answer: int
    outcome: Outcome
    rest: bytes = b""


def perform(
    acts: Sequence[tuple[Act, Fault | None]], disk: Disk, serve: Callable[[str], None], *, traced: bool = True
) -> list[Outcome]:
    """Run acts at once, each in a child of its own, and wait for the end of all.

    Args:
        acts: What each child does, and what goes wrong in it.
        disk: What is filled where a disk is full.
        serve: What a child asks of the parent: to harm the server. It is called here, and the child waits for it.
        traced: Whether events are counted even where nothing goes wrong.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    children: list[_Child] = []
    gate_read, gate_write = os.pipe()  # closed once all are there, so that they start together
    for act, fault in acts:
        told_read, told_write = os.pipe()
        answer_read, answer_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            for other in children:
                os.close(other.told)
                os.close(other.answer)
            for handle in (told_read, answer_write, gate_write):
                os.close(handle)
            os.read(gate_read, 1)
            os.close(gate_read)
            _play(act, fault, disk, told_write, answer_read, traced=traced or fault is not None)
        os.close(told_write)
        os.close(answer_read)
        children.append(_Child(pid, told_read, answer_write, Outcome()))
    os.close(gate_write)
    os.close(gate_read)
    _listen(children, serve)
    for child in children:
        _, status = os.waitpid(child.pid, 0)
        child.outcome.status = os.waitstatus_to_exitcode(status)
        os.close(child.told)
        os.close(child.answer)
    disk.free()
    return [child.outcome for child in children]


def _listen(children: list[_Child], serve: Callable[[str], None]) -> None:
    deadline = time.monotonic() + PATIENCE
    by_handle = {child.told: child for child in children}
    while by_handle:
        ready, _, _ = select.select(list(by_handle), [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            for child in by_handle.values():
                child.outcome.hung = True
                os.kill(child.pid, signal.SIGKILL)
            return
        for handle in ready:
            child = by_handle[handle]
            piece = os.read(handle, 1 << 16)
            if not piece:
                del by_handle[handle]
                continue
            *lines, child.rest = (child.rest + piece).split(b"\n")
            for line in lines:
                _heard(child, json.loads(line), serve)


def _heard(child: _Child, entry: dict[str, Any], serve: Callable[[str], None]) -> None:
    if "struck" in entry:
        child.outcome.struck = True
    elif "ask" in entry:
        serve(entry["ask"])
        os.write(child.answer, b".")
    elif "events" in entry:
        child.outcome.events, child.outcome.modules = entry["events"], entry["modules"]
    else:
        child.outcome.told.append(entry)


def _play(act: Act, fault: Fault | None, disk: Disk, told: int, answer: int, *, traced: bool) -> None:
    """Run one act in the child; never returns."""

    def tell(**entry: Any) -> None:
        line = json.dumps(entry).encode() + b"\n"
        while line:  # a pipe takes what fits
            line = line[os.write(told, line) :]

    def ask(what: str) -> None:
        tell(ask=what)
        os.read(answer, 1)

    def struck() -> None:
        assert fault is not None
        tell(struck=True)
        strike(fault, disk, ask)

    code = 70
    try:
        # An ignored SIGINT is inherited from a shell's background job, where nothing could interrupt anything.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(null, 2)
        before = set(sys.modules)
        tracer = Tracer(fault, struck)
        if traced:
            sys.setprofile(tracer)
        try:
            code = act(tell)
        finally:
            sys.setprofile(None)
        if fault is None:
            tell(events=tracer.events, modules=sorted(set(sys.modules) - before))
    except BaseException as error:  # tracers and acts are ours: whatever escapes them is a mistake of the suite
        if fault is not None and fault.kind == "int" and isinstance(error, KeyboardInterrupt):
            code = 130  # between the act's end and ours
        else:
            tell(lost="".join(traceback.format_exception(error))[-3000:])
    finally:
        os._exit(code)
