"""Audits in a build: a file of many, with one error over all of them, and an assertion for tests.

A :class:`Suite` is a TOML file: what every audit of it has in common, and a table ``[[audit]]`` for each::

    confidence = 0.95            # over all audits together
    max_runs = 20000             # of each
    seed = 1

    [[audit]]
    name = "noisy count"
    mechanism = "mylib.py:noisy_count"     # or url = "https://..."
    epsilon = 1.0                          # or rho, or mu; delta with epsilon
    relation = "replace_one"
    pairs = [[[0, 0, 0], [0, 0, 1]]]       # or a file of them, or schema = "visits.toml"

**One error.** Each of k audits runs at confidence 1 - α/k. If all claims hold, the probability that any of them is
called violated, or any bound too high, is at most the sum of the audits' errors, α: whatever the mechanisms share. □
In tests the number of audits is not known beforehand: number k has the part 1/(k(k+1)) of α, and these add up to 1.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from escudo._card import card
from escudo._log import fingerprint
from escudo._spread import check_jobs, spread
from escudo._validate import did_you_mean, positive_integer, probability
from escudo.auditing._audit import audit
from escudo.auditing._http import HttpTarget
from escudo.auditing._result import Audit
from escudo.errors import EscudoError, InputError
from escudo.privacy import Guarantee, Relation
from escudo.table import Schema

_COMMON = ("confidence", "max_runs", "max_seconds", "seed", "workers")
_CLAIM = ("epsilon", "delta", "rho", "mu", "relation")
_SERVICE = ("headers", "timeout", "rate", "largest_answer")
_OWN = ("name", "mechanism", "url", "pairs", "schema", "memoryless", "last_bits", *_SERVICE, *_CLAIM, *_COMMON[1:])
_FROM_ENVIRONMENT = "env:"


# ---- what is audited, by name


def mechanism_named(name: str, folder: Path = Path()) -> Any:
    """Return what ``module:function`` or ``file.py:function`` names; a class is made without arguments.

    Args:
        name: The name.
        folder: Where a file is looked for.

    Raises:
        InputError: If there is no such thing.
    """
    where, colon, what = name.rpartition(":")
    if not colon or not where or not what:
        raise InputError(
            f"{name!r} must be MODULE:FUNCTION, such as mylib.mechanisms:noisy_count or audit_me.py:count."
        )
    try:
        if where.endswith(".py"):
            path = folder / where
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.exists():
                raise InputError(f"there is no file {where!r}.")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, str(folder) if folder != Path() else "")
            module = importlib.import_module(where)
    except ImportError as error:
        raise InputError(f"cannot import {where!r}: {error}.") from error
    except InputError:
        raise
    except Exception as error:  # whatever the user's own file does
        raise InputError(
            f"importing {where!r} failed with a {type(error).__name__}; run the command again as 'escudo --debug ...' "
            "to see where."
        ) from error
    found: Any = module
    for part in what.split("."):
        if not hasattr(found, part):
            raise InputError(f"{where!r} has no {what!r}.{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except TypeError as error:
        raise InputError(f"{what!r} is a class that cannot be made without arguments; name a function.") from error


def pairs_in(path: Path) -> list[tuple[Any, Any, str]]:
    """Return the pairs of a JSON file, a list of pairs of datasets, each with a label.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path.name!r}: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(f"{path.name!r} is not JSON: {error}.") from error
    return _labelled(data, f"{path.name!r}")


def _labelled(data: Any, where: str) -> list[tuple[Any, Any, str]]:
    if not isinstance(data, list) or not data or any(not isinstance(one, list) or len(one) != 2 for one in data):
        raise InputError(f"{where} must hold a list of pairs, such as [[[0, 0], [0, 1]], [[1, 1], [1, 0]]].")
    return [(first, second, f"{_cut(str(first))} against {_cut(str(second))}") for first, second in data]


def plain_pairs(relation: str) -> list[tuple[Any, Any, str]]:
    """Return short lists of zeros and ones, for mechanisms that take a list of numbers."""
    if relation == "replace_one":
        lists = [([0, 0, 0], [0, 0, 1]), ([1, 1, 1], [1, 1, 0]), ([0, 1, 1], [1, 1, 1])]
    else:
        lists = [([0, 0], [0, 0, 1]), ([1, 1], [1, 1, 0]), ([1], [1, 1])]
    return [(first, second, f"{first} against {second}") for first, second in lists]


def headers_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return headers; a value ``env:NAME`` is that of an environment variable, so that no key stands in a file.

    Raises:
        InputError: If there is no such variable; its name is said, and never a value.
    """
    found = {}
    for name, value in given.items():
        if value.startswith(_FROM_ENVIRONMENT):
            variable = value.removeprefix(_FROM_ENVIRONMENT).strip()
            if variable not in os.environ:
                raise InputError(f"the header {name!r} is to come from the environment, which has no {variable!r}.")
            value = os.environ[variable]
        found[name] = value
    return found


def _cut(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- suites


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suite:
    """Audits that share one error.

    Attributes:
        confidence: That nothing false is said, over all of them.
        audits: What is asked in each, as :meth:`read` takes it.
        folder: Where files that are named lie.
    """

    confidence: float = 0.95
    audits: tuple[Mapping[str, Any], ...]
    folder: Path = Path()

    def __post_init__(self) -> None:
        probability("confidence", self.confidence, allow_zero=False)
        if not self.audits:
            raise InputError("a suite must have at least one [[audit]].")
        names = [one.get("name") for one in self.audits]
        if len(set(names)) < len(names) or None in names:
            raise InputError("every [[audit]] of a suite needs a name of its own.")
        for one in self.audits:
            for key in one:
                if key not in _OWN:
                    raise InputError(f"the audit {one['name']!r} has an unknown key {key!r}.{did_you_mean(key, _OWN)}")

    @classmethod
    def read(cls, path: str | os.PathLike[str], **changed: Any) -> Suite:
        """Read a suite from a TOML file.

        Args:
            path: The file.
            changed: What all audits have in common, instead of what the file says: ``confidence``, ``max_runs``,
                ``max_seconds``, ``seed``, ``workers``.

        Raises:
            InputError: If the file cannot be read, or says something that is not understood.
        """
        where = Path(path)
        try:
            data = tomllib.loads(where.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read {where.name!r}: {error.strerror or error}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{where.name!r} is not TOML: {error}.") from error
        audits = data.pop("audit", [])
        if not isinstance(audits, list) or not all(isinstance(one, dict) for one in audits):
            raise InputError(f"{where.name!r} must have a table [[audit]] for each audit.")
        common = {**data, **{key: value for key, value in changed.items() if value is not None}}
        for key in common:
            if key not in _COMMON:
                raise InputError(f"{where.name!r} has an unknown key {key!r}.{did_you_mean(key, (*_COMMON, 'audit'))}")
        return cls(
            confidence=common.pop("confidence", 0.95),  # of all of them together: no audit's own
            audits=tuple({**common, **one, **_given(changed, one)} for one in audits),
            folder=where.parent,
        )

    def run(
        self,
        on_audit: Callable[[str, SuiteEntry], None] | None = None,
        *,
        jobs: int | None = None,
        log: str | os.PathLike[str] | None = None,
    ) -> SuiteResult:
        """Run all audits; one that cannot be run is an error of its own.

        Args:
            on_audit: Called with the name and the finding of each audit when it is done, in the order of the file.
            jobs: How many processes, as in joblib, each with audits of its own; None follows
                ``joblib.parallel_config``, which may name a cluster that sees the suite's folder, and is otherwise one.
            log: A folder that keeps the record of every audit, so that the same suite goes on where it was stopped; on
                a cluster, one that all workers see. What is asked of a mechanism, the file that it is written in and
                those of pairs and schema name the record: where one of them has changed, the audit begins anew. What
                the mechanism imports is not looked at: after a change there, name another folder.

        Raises:
            InputError: If the folder cannot be made.
        """
        found = []
        asked = partial(self._entry, log=None if log is None else _folder_of_logs(Path(log).absolute()))
        for entry in spread(asked, self.audits, check_jobs(jobs), chunk=1):
            found.append(entry)
            if on_audit is not None:
                on_audit(entry.name, entry)
        return SuiteResult(confidence=self.confidence, entries=tuple(found))

    def _entry(self, one: Mapping[str, Any], log: Path | None) -> SuiteEntry:
        start = time.perf_counter()
        name, confidence = str(one["name"]), 1 - (1 - self.confidence) / len(self.audits)
        try:
            return SuiteEntry(name=name, audit=self._ask(one, confidence, log))
        except (EscudoError, SystemExit) as error:
            why = str(error) if isinstance(error, EscudoError) else "it ended the program (sys.exit)."
            return SuiteEntry(name=name, error=why, seconds=time.perf_counter() - start)

    def _ask(self, one: Mapping[str, Any], confidence: float, log: Path | None) -> Audit:
        if "schema" in one and "pairs" in one:
            raise InputError("give pairs or a schema, not both.")
        schema = Schema.read(self.folder / one["schema"]) if "schema" in one else None
        claim = claim_of(one, schema)
        options = {key: one[key] for key in ("max_runs", "max_seconds", "seed", "workers", "memoryless", "last_bits")
                   if key in one}  # fmt: skip
        if schema is not None:
            options["schema"] = schema
        elif isinstance(one.get("pairs"), str):
            options["pairs"] = pairs_in(self.folder / one["pairs"])
        else:
            options["pairs"] = _labelled(one["pairs"], "pairs") if "pairs" in one else plain_pairs(claim.relation)
        target = self._target(one)
        if log is not None:
            named = [self.folder / one[key] for key in ("schema", "pairs") if isinstance(one.get(key), str)]
            files = [path.read_bytes() for path in (*named, *_source_of(target))]
            said = json.dumps({**one, "name": ""}, sort_keys=True, default=str)
            options["log"] = log / f"{fingerprint(said, confidence, *files)[:32]}.log"
        return audit(target, claim=claim, confidence=confidence, progress=False, **options)

    def _target(self, one: Mapping[str, Any]) -> Any:
        if ("mechanism" in one) == ("url" in one):
            raise InputError("name a mechanism or a url, and not both.")
        limits = {key: one[key] for key in ("timeout", "largest_answer") if key in one}
        if "mechanism" in one:
            if any(key in one for key in _SERVICE):
                raise InputError("headers, timeout, rate and largest_answer go with a url.")
            return mechanism_named(one["mechanism"], self.folder)
        rate = one.get("rate")
        return HttpTarget(one["url"], headers=headers_of(one.get("headers", {})), calls_per_second=rate, **limits)


def _source_of(target: Any) -> list[Path]:
    """Return the file in which a mechanism is written, if it is in one."""
    try:
        found = inspect.getsourcefile(inspect.unwrap(target) if inspect.isroutine(target) else type(target))
    except TypeError:  # it is built in
        return []
    return [Path(found)] if found is not None and Path(found).is_file() else []


def _folder_of_logs(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder.name!r} for logs: {error.strerror or error}.") from error
    return folder


def _given(changed: Mapping[str, Any], one: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked for instead of an audit's own words."""
    return {key: value for key, value in changed.items() if value is not None and key in one}


def claim_of(said: Mapping[str, Any], schema: Schema | None) -> Guarantee:
    """Return what is claimed: of a person with all their rows, where the schema says whose rows they are.

    Args:
        said: One of ``epsilon``, ``rho`` and ``mu``; ``delta`` and ``relation`` if they are not the usual ones.
        schema: Of the tables, if there is one.

    Raises:
        InputError: If not one thing is claimed.
    """
    claimed = {key: said[key] for key in ("epsilon", "rho", "mu") if said.get(key) is not None}
    if len(claimed) != 1:
        raise InputError(f"say what is claimed with one of epsilon, rho and mu; got {len(claimed)} of them.")
    terms: dict[str, Any] = {key: said[key] for key in ("delta", "relation") if said.get(key) is not None}
    if schema is not None and schema.person_id is not None:
        terms |= {"unit": "person", "max_rows_per_person": schema.max_rows_per_person}
    return Guarantee(**claimed, **terms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuiteEntry:
    """One audit of a suite.

    Attributes:
        name: Its name.
        audit: What it found; None if it could not be run.
        error: Why it could not be run.
        seconds: How long that took, if there is no audit.
    """

    name: str
    audit: Audit | None = None
    error: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """``"violated"``, ``"error"`` (also where nothing was audited) or ``"passed"``: no violation was found."""
        if self.audit is None or self.audit.nothing_audited:
            return "error"
        return "violated" if self.audit.violated else "passed"

    @property
    def said(self) -> str:
        """The finding in words."""
        return self.error if self.audit is None else self.audit.verdict

    @property
    def lines(self) -> tuple[str, ...]:
        """The finding with its witness and notes, a line each."""
        if self.audit is None:
            return (self.error,)
        witness = () if self.audit.witness is None else (str(self.audit.witness),)
        return (self.audit.verdict, *witness, *self.audit.notes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        found = None if self.audit is None else self.audit.to_json()
        return {"name": self.name, "outcome": self.outcome, "error": self.error, "audit": found}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuiteResult:
    """What the audits of a suite found.

    Attributes:
        confidence: With which none of the findings is false, all of them together.
        entries: One for each audit, in order.
    """

    confidence: float
    entries: tuple[SuiteEntry, ...] = field(default=())

    def count(self, outcome: str) -> int:
        """Return how many audits came out so."""
        return sum(entry.outcome == outcome for entry in self.entries)

    @property
    def violated(self) -> bool:
        """Whether a claim is rejected."""
        return self.count("violated") > 0

    @property
    def verdict(self) -> str:
        """All findings in a sentence."""
        broken, failed, every = self.count("violated"), self.count("error"), len(self.entries)
        text = f"{broken} of {every} claims rejected at {100 * self.confidence:.4g} % confidence over all of them"
        return text + (f"; {failed} could not be audited." if failed else ".")

    def __str__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        rows = [[entry.name, entry.outcome, entry.said] for entry in self.entries]
        return card("Audits", self.verdict, head=["audit", "outcome", "what it says"], rows=rows, alarm=self.violated)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        return {
            "confidence": self.confidence,
            "verdict": self.verdict,
            "violated": self.violated,
            "audits": [entry.to_json() for entry in self.entries],
        }

    def to_junit(self) -> str:
        """Return the findings as JUnit XML, for whatever shows the results of a build.

        >>> print(SuiteResult(confidence=0.95, entries=(SuiteEntry(name="count", error="gone"),)).to_junit()[:38])
        <?xml version='1.0' encoding='utf-8'?>
        """
        seconds = [entry.seconds if entry.audit is None else entry.audit.seconds for entry in self.entries]
        counts = {
            "tests": str(len(self.entries)),
            "failures": str(self.count("violated")),
            "errors": str(self.count("error")),
            "time": f"{sum(seconds):.3f}",
        }
        root = ElementTree.Element("testsuites", counts)
        suite = ElementTree.SubElement(root, "testsuite", {"name": "escudo audit", **counts})
        for entry, took in zip(self.entries, seconds, strict=True):
            terms = {"classname": "escudo.audit", "name": _in_xml(entry.name), "time": f"{took:.3f}"}
            case = ElementTree.SubElement(suite, "testcase", terms)
            text = _in_xml("\n".join(entry.lines))
            if entry.outcome == "passed":
                ElementTree.SubElement(case, "system-out").text = text
            else:
                kind = "failure" if entry.outcome == "violated" else "error"
                ElementTree.SubElement(case, kind, {"message": _in_xml(entry.said)}).text = text
        written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
        return written.decode() + "\n"


def _in_xml(text: str) -> str:
    """Return a text without the signs that XML cannot hold, each as a mark."""
    return "".join(
        sign if sign in "\t\n" or (" " <= sign <= "\ud7ff") or "\ue000" <= sign <= "\ufffd" or sign >= "\U00010000"
        else "\ufffd"
        for sign in text
    )  # fmt: skip


# ---- in tests


def assert_private(
    mechanism: Any,
    *,
    pairs: Sequence[tuple[Any, ...]] | None = None,
    schema: Schema | None = None,
    relation: Relation = "replace_one",
    claim: Guarantee | None = None,
    **options: Any,
) -> Audit:
    """Audit a mechanism in a test, and fail the test if its claim is rejected.

    A test that passes proves nothing: it found no violation in the runs it made. With a seed, it comes out the same
    every time.

    Args:
        mechanism: As for :func:`~escudo.audit`.
        pairs: Neighbouring datasets; short lists of zeros and ones if neither they nor a schema are given.
        schema: Make the pairs from this.
        relation: What one record does between neighbours.
        claim: What is promised, or in ``options``: ``epsilon`` and ``delta``, ``rho``, or ``mu``.
        options: What else :func:`~escudo.audit` takes; here ``confidence`` is 0.999, ``max_runs`` 20,000, ``seed`` 0.

    Returns:
        The audit, if there was no violation.

    Raises:
        AssertionError: If the claim is rejected, or nothing could be audited, with verdict and witness.

    >>> def noisy_count(rows, rng):
    ...     return len(rows) + rng.geometric(0.632) - rng.geometric(0.632)
    >>> assert_private(noisy_count, epsilon=1.01, relation="add_remove", max_runs=2000).violated
    False
    """
    said = {key: options.pop(key) for key in ("epsilon", "delta", "rho", "mu") if key in options}
    if (claim is None) == (not said):
        raise InputError("say what is claimed: epsilon (and delta), rho, mu, or claim, and only one of them.")
    promise = claim if claim is not None else Guarantee(**said, relation=relation)
    if pairs is None and schema is None:
        pairs = plain_pairs(promise.relation)
    given = {"confidence": 0.999, "max_runs": positive_integer("max_runs", 20_000), "seed": 0, "progress": False}
    found = audit(mechanism, claim=promise, pairs=pairs, schema=schema, **(given | options))
    if found.violated or found.nothing_audited:
        raise AssertionError("\n".join(SuiteEntry(name="", audit=found).lines))
    return found
