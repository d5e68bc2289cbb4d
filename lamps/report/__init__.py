"""One self-contained HTML page about a run: opens offline, in any browser, with what was decided.

`document` gathers what is told, `page` puts it into a page; the charts are drawn by a script of
our own in ``static``: general chart libraries alone are larger than a whole report may be.
"""

from __future__ import annotations

from lamps.report.page import write_report

__all__ = ["write_report"]
