"""Zip and tar files, read safely: images, tables, WebDataset samples in them.

members.py        what is known of a member, and what is refused
zip.py tar.py     the members of one kind of archive
archives.py       those of any archive, one after the other, within bounds
rows.py           archives in which members are rows: images.py and webdataset.py
reader.py         what an archive holds: images, WebDataset samples or tables.py
"""
