"""A schema as a small card for notebooks."""

from __future__ import annotations

from html import escape

from escudo.table._schema import Schema

__all__ = ["schema_card"]

_SHOWN = 40


def schema_card(schema: Schema) -> str:
    """Return the schema as an HTML table: names and shapes, nothing that was read from data and not confirmed."""
    rows = "".join(
        f"<tr><td style='text-align:left'><code>{escape(column.name)}</code></td>"
        f"<td style='text-align:left'>{escape(column.summary)}</td></tr>"
        for column in schema.fields[:_SHOWN]
    )
    if len(schema) > _SHOWN:
        rows += f"<tr><td colspan='2' style='text-align:left'>… and {len(schema) - _SHOWN:,} more</td></tr>"
    protects = (
        "protects one row"
        if schema.person_id is None
        else f"protects one person (<code>{escape(schema.person_id)}</code>, at most {schema.max_rows_per_person} rows)"
    )
    state = "confirmed" if schema.confirmed else "<b>not confirmed: releases refuse it</b>"
    plural = "" if len(schema) == 1 else "s"
    caption = f"Schema: {len(schema):,} column{plural} · {protects} · {state}"
    return f"<table><caption style='text-align:left'>{caption}</caption>{rows}</table>"
