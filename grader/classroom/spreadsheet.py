"""Write tables that contain untrusted text, without letting a spreadsheet interpret the text as formulas.

The character that separates the cells of a .csv file depends on the spreadsheet's locale. In locales with a decimal
comma, it is a semicolon, so a semicolon inside a text starts a new cell.
"""

import csv as csv_module
import io
import re
from collections.abc import Sequence

type Row = Sequence[str | int]

_CALCULATED = "=+@\t\r＝＋－＠-"
# The places where a formula could start: the beginning of a text, or after a possible separator, with any quotes and
# spaces in between.
_BEGINS = re.compile(rf"(^|[;|\t])(?=[\s\"'’‘“”]*[{_CALCULATED}])")


def csv(rows: Sequence[Row]) -> str:
    """Return a table as comma-separated values, with a quote before everything that could start a formula."""
    out = io.StringIO()
    csv_module.writer(out).writerows(
        [_as_inert_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return out.getvalue()


def _as_inert_text(text: str) -> str:
    return _BEGINS.sub(r"\1'", " ".join(text.splitlines()) if len(text.splitlines()) > 1 else text)


def xlsx(rows: Sequence[Row]) -> bytes:
    """Return a table as an Excel workbook in which no text is a formula."""
    # Imported here, because the import takes 0.2 s, which would delay every command.
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("grades")

    def cell(value: str | int) -> WriteOnlyCell:
        if isinstance(value, int):
            return WriteOnlyCell(sheet, value)
        # Excel's limit is 32,767 characters.
        made = WriteOnlyCell(sheet, "".join(c if c.isprintable() else " " for c in value)[:32_000])
        made.data_type = "s"  # otherwise, text that starts with = would be a formula
        return made

    for row in rows:
        sheet.append(list(map(cell, row)))
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()
