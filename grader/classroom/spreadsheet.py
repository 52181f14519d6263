"""Write tables in which a spreadsheet calculates nothing that a stranger wrote.

Which character parts the cells of a .csv depends on where the spreadsheet runs: where decimals have a comma it is the
semicolon, and then a cell may begin in the middle of a text.
"""

import csv as csv_module
import io
import re
from collections.abc import Sequence

type Row = Sequence[str | int]

_CALCULATED = "=+@\t\r＝＋－＠-"
# What would be calculated: at the beginning of a text, or behind what may part cells, whatever quotes and spaces stand
# in between.
_BEGINS = re.compile(rf"(^|[;|\t])(?=[\s\"'’‘“”]*[{_CALCULATED}])")


def csv(rows: Sequence[Row]) -> str:
    """Return a table as text, its cells parted by commas; a quote stands in front of what would be calculated."""
    out = io.StringIO()
    csv_module.writer(out).writerows(
        [_as_inert_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return out.getvalue()


def _as_inert_text(text: str) -> str:
    return _BEGINS.sub(r"\1'", " ".join(text.splitlines()) if len(text.splitlines()) > 1 else text)


def xlsx(rows: Sequence[Row]) -> bytes:
    """Return a table as an Excel workbook, whose texts are texts and nothing else."""
    # Not above: it takes a fifth of a second, and every command would wait for it.
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("grades")

    def cell(value: str | int) -> WriteOnlyCell:
        if isinstance(value, int):
            return WriteOnlyCell(sheet, value)
        made = WriteOnlyCell(sheet, "".join(c if c.isprintable() else " " for c in value)[:32_000])  # it takes no more
        made.data_type = "s"  # or what begins with = would be a formula
        return made

    for row in rows:
        sheet.append(list(map(cell, row)))
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()
