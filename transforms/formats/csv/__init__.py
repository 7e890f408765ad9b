"""CSV files: the names that the rest of the program uses.

dialect.py       how the files are written: delimiter, quote, header, encoding
scan.py          bytes -> where records and lines begin
blocks.py        a file -> blocks that end where records end
records.py       whole records -> columns of text
header.py        a file -> the names of its columns
sample.py        files -> a sample of their rows as text
read.py          a block -> columns of text, and the rows that cannot be read
reader.py        all of this as the reader of a table format
"""

from transforms.formats.csv.blocks import iter_blocks
from transforms.formats.csv.dialect import CsvDialect
from transforms.formats.csv.header import check_same_columns, read_header
from transforms.formats.csv.read import read_raw
from transforms.formats.csv.sample import Sample, SampleInput, sample_blocks

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
