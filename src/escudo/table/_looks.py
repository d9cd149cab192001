"""What the texts of a column look like: days, numbers with signs or units, or something about single people.

Asked while a schema is drafted, of the different texts of a column: for the custodian's own eyes. A few words among
many days or numbers do not change what these look like, nor does what means that there is no value.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from escudo.table._text_files import FEW_WORDS, is_marker
from escudo.table._values import loosely, numbers_in_texts

_FEWEST_DIGITS = 5  # of a day: those of its year, and one of its number
_FEWEST_LEVELS = 3  # texts that may be numbers with a unit
_PART = 1e-3  # of a cent
_WHOLE = 2.0**53  # of dollars: floats from there on have no cents
_MOST_WAYS = 3  # in which the days of one column are written
_YES_OR_NO = 2  # answers
FEW = 20
"""A number with at most so many distinct values is drafted as categorical, and a text with so many is an answer."""

_FULL_NAME = re.compile(r"([A-ZÀ-ÖØ-ÞĀ-Ž][^\W\d_]*(['’.-][^\W\d_]+)*\.?(, | |$)){2,4}")
_TITLED = re.compile(r"((Dr|Prof|Mr|Mrs|Ms|Miss|Herr|Frau|Mme|Sra?|Dra)(\. ?| ))+[A-ZÀ-ÖØ-ÞĀ-Ž][^\W\d_]+.*")
_MOST = 0.8  # of the texts in a column of names
_IN_DIGITS = ("telephone numbers", "national or insurance numbers")  # written as whole numbers, too
_LONG = 10**6  # what has fewer digits than such numbers have
_PERSONAL: dict[str, tuple[re.Pattern[str], re.Pattern[str] | None]] = {
    "e-mail addresses": (re.compile(r"e ?mail|\bcorreo\b"), re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")),
    "telephone numbers": (
        re.compile(r"(tele)?phone|t[eé]l[eé](fon|phone)|\b(tel|mobile?|m[oó]vil|handy|fax)\b"),
        re.compile(r"(?=(.*\d){7})(\+|\(?0)[\d ()/.-]+"),
    ),
    "national or insurance numbers": (
        re.compile(
            r"\b(ssn|nhs|nino|passport|iban|dni|bsn|mrn|national|insurance|social security)( (no|nr|number))?\b"
            r"|versicher(ten?|ungs) ?(nummer|nr|id)\b|\b(kv|sv|rv|vers|steuer) ?(nummer|nr|id)\b"
            r"|sozialversicherung|ausweis"
        ),
        re.compile(r"\d{3}-\d{2}-\d{4}|[A-Z]\d{9}|[A-Z]{2}\d{2}[A-Z0-9 ]{11,30}|[A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]"),
    ),
    "names of people": (
        re.compile(
            r"\b((first|last|given|family|full|middle|maiden|sur) ?name|surname)\b|^(name|nom|nombre|nome)$"
            r"|\b((vor|nach|familien|geburts)name|apellidos?|pr[eé]nom|cognome|sobrenome)\b"
        ),
        None,
    ),
    "addresses": (
        re.compile(
            r"\b(street|(home|postal|street) address|stra(ss|ß)e|anschrift|calle|direcci[oó]n|indirizzo)\b"
            r"|^(address|adresse)$"
        ),
        None,
    ),
    "free text": (
        re.compile(
            r"\b(comments?|notes?|remarks?|narrative|free ?text|anamnesis)\b"
            r"|\b(freitext|bemerkung(en)?|kommentare?|notiz(en)?|anamnese|befund|observaciones|comentarios?|remarques?)\b"
        ),
        re.compile(r"(\S+\s+){4,}\S+"),
    ),
}
"""What is about single people or written by them: how such columns are called, and what they hold."""
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d-%b-%Y", "%d %b %Y")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_TIMES = ("", *(between + clock + zone for zone in ("", "%z", " %z") for between in " T" for clock in _CLOCKS))
_FORMS = tuple(day + time for day in _DAYS for time in _TIMES)
_LIKE_A_DAY = re.compile(r"\d{1,4}[-/. ](\d{1,2}|[^\W\d]{3,})[-/. ]\d{2,4}(?!\d)")  # as all of these are
_CURRENCIES = re.compile(
    "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|BGN|RUB|UAH|TRY|BRL|MXN|ARS|CLP|COP|ZAR|KRW|ILS"
    "|FR|KR|RS|ZŁ"
)
_AFFIXED = re.compile(
    r"[+-]?\s*(?P<before>(?![\d.,'’])\S[^\d+-]{0,9})??[+-]?"
    r"(?P<digits>\d[\d.,'’\s]*?)([eE][+-]?\d{1,3})?(?P<after>\s*(?![\d.,'’])[^\s+-][^\d+-]{0,11})?"
)
_MOST_UNITS = 5
_LONGEST_NUMBER = 60  # characters, with sign and unit: what is longer is not looked at


def filled(levels: Sequence[Any]) -> list[str]:
    """Return the texts among some levels that do not mean "no value", without the blanks around them."""
    return [level.strip() for level in levels if isinstance(level, str) and not is_marker(level)]


def _affixes(texts: Sequence[str]) -> Counter[tuple[str, str]]:
    """Count what stands before and after the digits of texts that seem to be numbers with signs or units.

    Before them only a currency may stand: other letters make codes. So do zeros that digits begin with.
    """
    found = Counter[tuple[str, str]]()
    for text in texts:
        seen = _AFFIXED.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
        if seen is None or re.match(r"0\d", seen["digits"]):
            continue
        before, after = seen["before"] or "", seen["after"] or ""
        if not before or _is_currency(before):
            found[before, after] += 1
    return found


def _is_currency(text: str) -> bool:
    """Whether a text is a currency: its name in letters, or its sign, also with two letters.

    >>> [_is_currency(text) for text in ("$", "US$ ", "Eur ", "Fr. ", "A", "#")]
    [True, True, True, True, False, False]
    """
    letters = "".join(sign for sign in text if unicodedata.category(sign) != "Sc").strip(" .\u00a0")
    signs = any(unicodedata.category(sign) == "Sc" for sign in text)
    return (signs and len(letters) <= 2) or _CURRENCIES.fullmatch(letters.upper()) is not None


def number_form(levels: Sequence[Any], decimal: str) -> str | None:
    """Return how these texts write 1234.5, if nearly all of them are numbers with one sign or unit, or in groups.

    >>> number_form(["$12,300", "$5", "NA", "$7.50", "$800"], ".")
    '$1,234.5'
    >>> number_form(["€ 1.200,50", "€ 3,10", "€ 12"], "."), number_form(["70 kg", "71.5 kg", "8 kg"], ".")
    ('€ 1.234,5', '1234.5 kg')
    >>> number_form(["12,300", "1,250,000", "700"], "."), number_form(["A12", "A13", "A14"], ".")
    ('1,234.5', None)
    """
    texts = filled(levels)
    counted = _affixes(texts)
    words = min(FEW_WORDS, len(texts) // 10)
    if len(texts) < _FEWEST_LEVELS or len(texts) - counted.total() > words:
        return None
    alike = Counter[tuple[str, str]]()
    for (before, after), several in counted.items():
        alike[loosely(before), loosely(after)] += several
    usual = max(alike, key=alike.__getitem__)
    before, after = max(
        (pair for pair in counted if tuple(map(loosely, pair)) == usual), key=lambda pair: (counted[pair], pair)
    )
    other = "," if decimal == "." else "."
    between = {decimal: ("", other, "'", " "), other: ("", decimal, " ")}
    forms = [f"{before}1{sign}234{point}5{after}" for point, signs in between.items() for sign in signs]
    currency = _is_currency(before) or _is_currency(after)

    def unlikely(form: str) -> tuple[int, int]:
        """How many texts are no number written so; and of how many amounts of money there would be parts of a cent."""
        numbers = numbers_in_texts(texts, form)
        told = numbers[np.abs(numbers) < _WHOLE] * 100
        parts = int((np.abs(told - np.round(told)) > _PART).sum())
        return int(np.isnan(numbers).sum()), currency * parts

    form = min(forms, key=unlikely)
    return form if unlikely(form)[0] <= words and form != f"1234{decimal}5" else None


def several_units(levels: Sequence[Any]) -> bool:
    """Whether nearly all of these texts are numbers with one of a few signs or units."""
    texts = filled(levels)
    usual = _affixes(texts).most_common(_MOST_UNITS)
    return len(usual) > 1 and len(texts) - sum(several for _, several in usual) <= min(FEW_WORDS, len(texts) // 10)


def personal(name: str, levels: list[Any], rows: int) -> str | None:
    """Return what kind of personal text a column seems to hold, by its name or by most of its values; None for none.

    Of numbers, long ones are looked at, which are personal if the column is called like telephone or national numbers.
    """
    called = re.sub(r"[_\W]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).lower().strip()
    texts = [level.strip() for level in levels if isinstance(level, str) and not is_marker(level)]
    digits = [level for level in levels if isinstance(level, int | float) and level >= _LONG and level == level // 1]
    if 2 * len(digits) > len(levels) and len(digits) > min(FEW, rows // 2):
        return next((kind for kind in _IN_DIGITS if _PERSONAL[kind][0].search(called)), None)
    for kind, (names, values) in _PERSONAL.items():
        # A column of that name with a handful of answers is a question with a handful of answers: yes, no, by e-mail;
        # one where most rows have an answer of their own is none.
        # Names and addresses are no answers, however few people there are.
        if names.search(called) and len(texts) > (min(_YES_OR_NO, rows - 1) if values is None else min(FEW, rows // 2)):
            return kind
        if values is not None and texts and 2 * sum(bool(values.fullmatch(text)) for text in texts) > len(texts):
            return kind
    # Whatever the column is called: texts with a title, or many of two to four words with capitals and nothing else.
    if texts and sum(bool(_TITLED.fullmatch(text)) for text in texts) > _MOST * len(texts):
        return "names of people"
    called_so = sum(bool(_FULL_NAME.fullmatch(text)) for text in texts)
    return "names of people" if len(texts) > FEW and called_so > _MOST * len(texts) else None


def one_spelling(levels: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return one of the texts that differ in case or in blanks around them only, and which one the others count as.

    >>> one_spelling(["F", "F ", "f", " M", ""])
    (['F', 'M', ''], {'F ': 'F', 'f': 'F', ' M': 'M'})
    """
    chosen: dict[str, str] = {}
    for level in sorted(levels, key=lambda level: (level != level.strip(), level)):
        chosen.setdefault(level.strip().casefold(), level.strip())
    kept = {level: chosen[level.strip().casefold()] for level in levels}
    return list(dict.fromkeys(kept.values())), {level: home for level, home in kept.items() if home != level}


def date_format(levels: list[Any], forms: Sequence[str] = _FORMS) -> str | None:
    """Return how days are written, if these texts are days but for those that mean "no value", and a few words.

    >>> date_format(["24.12.2024", "NA", "01.02.1950"]), date_format(["2024-12-24 18:00"]), date_format(["24"])
    ('%d.%m.%Y', '%Y-%m-%d %H:%M', None)
    """
    texts = filled(levels)
    words = min(FEW_WORDS, len(texts) // 10)

    def others(form: str) -> int:
        """How many texts are no day written so, as far as that matters."""
        found = 0
        for text in texts:
            with suppress(ValueError):
                dt.datetime.strptime(text, form)
                continue
            found += 1
            if found > words:
                break
        return found

    wordy = sum(sum(map(str.isdigit, text)) < _FEWEST_DIGITS for text in texts)
    best = min(forms, key=others) if texts and wordy <= words else None
    return best if best is not None and others(best) <= words else None


def several_ways(levels: Sequence[Any]) -> list[str]:
    """Return in which ways days are written, if nearly all texts are days, but in two or three ways; nothing if not.

    >>> several_ways(["24.12.2024", "2024-12-24", "01.02.1950", "1950-02-03"]), several_ways(["a", "b"])
    (['%Y-%m-%d', '%d.%m.%Y'], [])
    """
    left = filled(levels)
    words = min(FEW_WORDS, len(left) // 10)
    if sum(_LIKE_A_DAY.match(text) is None for text in left) > words:
        return []
    ways: list[str] = []
    while len(left) > words and len(ways) < _MOST_WAYS:
        form, others = min(((form, _no_days(left, form)) for form in _FORMS), key=lambda each: len(each[1]))
        if len(left) - len(others) <= max(words, 1):
            return []
        ways.append(form)
        left = others
    return sorted(ways) if len(left) <= words else []


def _no_days(texts: Sequence[str], form: str) -> list[str]:
    """Return the texts that are no day written so."""
    found = []
    for text in texts:
        try:
            dt.datetime.strptime(text, form)
        except ValueError:
            found.append(text)
    return found
