"""CSV as a table format.

scan.py          how the files are written -> where records and lines begin
blocks.py        a file -> its text, its header, and blocks that end where records end
read.py          a block -> columns of text, and the rows that cannot be read
reader.py        files -> blocks and rows; small files -> one text
header_check.py  whether a first row is a header, and what cells say of settings
sample.py        files -> a sample of their rows, and the plan of a source
"""
