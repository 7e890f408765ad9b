"""CSV files: the names that the rest of the program uses.

csv_dialect.py   how the files are written: delimiter, quote, header, encoding
csv_scan.py      bytes -> where records and lines begin
csv_blocks.py    a file -> blocks that end where records end
csv_records.py   whole records -> columns of text
csv_header.py    a file -> the names of its columns
csv_sample.py    files -> a sample of their rows as text
csv_read.py      a block -> columns of text, and the rows that cannot be read
csv_reader.py    all of this as the reader of a table format
"""

from transforms.formats.csv_blocks import iter_blocks
from transforms.formats.csv_dialect import CsvDialect
from transforms.formats.csv_header import check_same_columns, read_header
from transforms.formats.csv_read import read_raw
from transforms.formats.csv_sample import Sample, SampleInput, sample_blocks

__all__ = [
    "CsvDialect",
    "Sample",
    "SampleInput",
    "check_same_columns",
    "iter_blocks",
    "read_raw",
    "read_header",
    "sample_blocks",
]
