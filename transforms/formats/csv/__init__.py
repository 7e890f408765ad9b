"""CSV as a table format.

dialect.py       how the files are written -> where records and lines begin
blocks.py        a file -> its text, and blocks that end where records end
read.py          a block -> columns of text, and the rows that cannot be read
reader.py        files -> their headers, blocks and rows
header_check.py  whether a first row is a header, and what cells say of settings
joined.py        small files -> one text
sample.py        files -> a sample of their rows, and the plan of a source
"""
