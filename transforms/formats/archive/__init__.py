"""Zip and tar files, read safely: images, tables, WebDataset samples in them.

members.py        what is known of a member, and what is refused
zip.py tar.py     the members of one kind of archive
archives.py       those of any archive, and rows of them
reader.py         what an archive holds: images, webdataset.py or tables.py
"""
