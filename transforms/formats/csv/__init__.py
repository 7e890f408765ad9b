"""CSV as a table format.

dialect.py       how the files are written: delimiter, quote, header, encoding
scan.py          bytes -> where records and lines begin
blocks.py        a file -> blocks that end where records end
read.py          a block -> columns of text, and the rows that cannot be read
header.py        a file -> the names of its columns
reader.py        files -> blocks and their rows
sample.py        files -> a sample of their rows, and the plan of a source
"""
