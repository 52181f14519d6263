"""The workbook as a book on the web: `python -m book`."""
