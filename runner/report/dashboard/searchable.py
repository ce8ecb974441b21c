"""A table of a page that is one file: to sort and to search, with filters by the values of some columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def tables_head() -> Any:
    """Return DataTables itself, once for all tables of a page."""
    from itables.javascript import generate_init_offline_itables_html
    from itables.utils import find_package_file
    from markupsafe import Markup

    return Markup(generate_init_offline_itables_html(find_package_file("html/dt_bundle.js")))


def searchable_table(header: Sequence[str], rows: Sequence[Sequence[str]], filters: Sequence[str]) -> Any:
    """Make a table with filters by the values of some columns; all cells are text."""
    import pandas as pd
    from itables import to_html_datatable
    from markupsafe import Markup, escape

    at = [list(header).index(name) for name in filters]
    escaped = [[str(escape(cell)) for cell in row] for row in rows]
    return Markup(
        to_html_datatable(
            pd.DataFrame(escaped, columns=[str(escape(name)) for name in header]),
            connected=False,
            allow_html=True,
            showIndex=False,
            display_logo_when_loading=False,
            maxBytes=0,
            lengthMenu=[10, 25, 100],
            layout={"top1": "searchPanes"},
            searchPanes={"layout": f"columns-{len(at)}", "columns": at, "initCollapsed": True, "controls": False},
            columnDefs=[{"searchPanes": {"show": True}, "targets": at}],
        )
    )
