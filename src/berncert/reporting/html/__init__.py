"""The HTML report: `content` has what it says, `page` makes one file of it."""

from berncert.reporting.html.content import report
from berncert.reporting.html.page import report_html, write_report

__all__ = ["report", "report_html", "write_report"]
