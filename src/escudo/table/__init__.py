"""Tables as escudo sees them: a public schema, and a private frame behind it.

* :class:`Schema`, with its columns :class:`Categorical` and :class:`Numeric`: what is public about a table.
* :func:`draft` and :func:`outline`: a first schema, from data (to be confirmed) or from column types alone.
* :func:`check`: how data and schema fit, as a :class:`SchemaCheck` for the custodian's eyes only.
* :func:`draft_linked` and :func:`check_linked`: the same for linked tables, as a :class:`LinkedCheck`.
* :func:`scan`: a data file as a lazy frame; :func:`open_data`: a data file, or a table in a database by its URL.
* :class:`CountSensitivity`: how far one row or person can move counts.
* :class:`PrivateTable`: a frame of any engine behind its schema and its ledger account.
* :class:`LinkedSchema`, made of :class:`ChildTable`, and :class:`PrivateTables`: people with their visits, which answer
  in count tables, each described by a :class:`LinkedTable`; :func:`linked_picture`: a graph over them, drawn as plates.
"""

from escudo.table._check import CUSTODIAN_ONLY as CUSTODIAN_ONLY  # for the command line; not documented
from escudo.table._check import ColumnCheck, PersonCheck, SchemaCheck, check
from escudo.table._columns import MISSING_LABEL as MISSING_LABEL  # for learning; not documented, like encodable
from escudo.table._columns import PRIVATE_BINS as PRIVATE_BINS
from escudo.table._columns import Categorical, Column, Level, Numeric
from escudo.table._columns import in_order as in_order
from escudo.table._contributions import held as held  # for trainings; not documented
from escudo.table._counts import CountSensitivity, count_sensitivity
from escudo.table._counts import add_pairs as add_pairs  # for generators; not documented
from escudo.table._counts import level_places as level_places
from escudo.table._draft import DRAFT_NOTES as DRAFT_NOTES
from escudo.table._draft import draft, outline
from escudo.table._files import open_data, scan
from escudo.table._linked import PREVIOUS as PREVIOUS
from escudo.table._linked import Gathered as Gathered
from escudo.table._linked import Histories as Histories
from escudo.table._linked import HistoryRows as HistoryRows
from escudo.table._linked import LinkedTable, PrivateTables
from escudo.table._linked import Tally as Tally
from escudo.table._linked import View as View
from escudo.table._linked import counted_as as counted_as
from escudo.table._linked import exactly as exactly
from escudo.table._linked import size_of as size_of
from escudo.table._linked_custodian import LinkedCheck, check_linked, draft_linked
from escudo.table._linked_graph import LinkedStructure as LinkedStructure
from escudo.table._linked_graph import RowLaws as RowLaws
from escudo.table._linked_graph import check_linked_graph as check_linked_graph
from escudo.table._linked_graph import linked_picture
from escudo.table._linked_graph import linked_structure as linked_structure
from escudo.table._linked_schema import COUNT as COUNT
from escudo.table._linked_schema import COUNT_EDGES as COUNT_EDGES
from escudo.table._linked_schema import DAYS as DAYS
from escudo.table._linked_schema import DERIVED as DERIVED
from escudo.table._linked_schema import GAP as GAP
from escudo.table._linked_schema import NUMBER as NUMBER
from escudo.table._linked_schema import START as START
from escudo.table._linked_schema import ChildTable, LinkedSchema
from escudo.table._linked_schema import confirm_linked_file as confirm_linked_file
from escudo.table._rows import Placed as Placed  # for votes; not documented
from escudo.table._rules import Rule
from escudo.table._rules import broken_rows as broken_rows  # for models; not documented, like plain_values
from escudo.table._rules import plain_values as plain_values
from escudo.table._schema import Schema
from escudo.table._schema import with_sources as with_sources  # for directions; not documented
from escudo.table._schema_files import confirm_file as confirm_file  # for the command line; not documented, as below
from escudo.table._schema_files import parse_toml as parse_toml
from escudo.table._schema_files import read_any_schema as read_any_schema
from escudo.table._schema_files import read_text as read_text
from escudo.table._schema_files import toml_pairs as toml_pairs
from escudo.table._schema_files import write_text as write_text
from escudo.table._spark import WORKERS_MAY_NEED as WORKERS_MAY_NEED  # for escudo doctor; not documented
from escudo.table._spark import spark_remarks as spark_remarks
from escudo.table._spark import spark_workers as spark_workers
from escudo.table._spark import worker_versions as worker_versions
from escudo.table._table import PrivateTable
from escudo.table._text_files import FileCheck
from escudo.table._values import encodable as encodable
from escudo.table._where import on_workers as on_workers  # for what the custodian asks; not documented
from escudo.table._where import where_rows_are as where_rows_are
from escudo.table._whole import Whole as Whole  # for trainings and directions; not documented
from escudo.table._whole import Work as Work

__all__ = [
    "Categorical",
    "ChildTable",
    "Column",
    "ColumnCheck",
    "CountSensitivity",
    "FileCheck",
    "Level",
    "LinkedCheck",
    "LinkedSchema",
    "LinkedTable",
    "Numeric",
    "PersonCheck",
    "PrivateTable",
    "PrivateTables",
    "Schema",
    "SchemaCheck",
    "check",
    "check_linked",
    "count_sensitivity",
    "draft",
    "draft_linked",
    "linked_picture",
    "open_data",
    "outline",
    "scan",
]
