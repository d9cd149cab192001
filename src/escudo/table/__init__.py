"""Tables as escudo sees them: a public schema, and a private frame behind it.

* :class:`Schema`, with its columns :class:`Categorical` and :class:`Numeric`: what is public about a table.
* :func:`draft` and :func:`outline`: a first schema, from data (to be confirmed) or from column types alone.
* :func:`check`: how data and schema fit, as a :class:`SchemaCheck` for the custodian's eyes only.
* :func:`scan`: a data file as a lazy frame; :func:`open_data`: a data file, or a table in a database by its URL.
* :class:`CountSensitivity`: how far one row or person can move counts.
* :class:`PrivateTable`: a frame of any engine behind its schema and its ledger account.
"""

from escudo.table._columns import MISSING_LABEL as MISSING_LABEL  # for learning; not documented, like encodable
from escudo.table._columns import Categorical, Column, Level, Numeric
from escudo.table._columns import encodable as encodable
from escudo.table._counts import CountSensitivity, count_sensitivity
from escudo.table._custodian import CUSTODIAN_ONLY as CUSTODIAN_ONLY  # for the command line; not documented
from escudo.table._custodian import DRAFT_NOTES as DRAFT_NOTES
from escudo.table._custodian import ColumnCheck, PersonCheck, SchemaCheck, check, draft, outline
from escudo.table._files import open_data, scan
from escudo.table._schema import Schema
from escudo.table._schema_files import confirm_file as confirm_file  # for the command line; not documented, as below
from escudo.table._schema_files import parse_toml as parse_toml
from escudo.table._schema_files import read_text as read_text
from escudo.table._schema_files import toml_pairs as toml_pairs
from escudo.table._schema_files import write_text as write_text
from escudo.table._table import PrivateTable
from escudo.table._text_files import FileCheck

__all__ = [
    "Categorical",
    "Column",
    "ColumnCheck",
    "CountSensitivity",
    "FileCheck",
    "Level",
    "Numeric",
    "PersonCheck",
    "PrivateTable",
    "Schema",
    "SchemaCheck",
    "check",
    "count_sensitivity",
    "draft",
    "open_data",
    "outline",
    "scan",
]
