"""Golden answers and the public API: what escudo says today, held still by two committed files.

``cases`` are questions with a fixed seed, ``seen`` is all that an answer shows as digests piece by piece
(``answers.json``), ``api`` is every public name with its signature (``api.json``). ``python -m golden --write`` renews
both. Only public names are imported here, so that the files stay true when the source is built anew.
"""
