"""Zip and tar files, read safely: images, tables, WebDataset samples in them.

members.py               what is known of a member, and what is refused
archives.py tar.py       the members of a zip, of a tar, of any archive
row_archives.py          rows of members; images.  webdataset.py: samples
reader.py                what an archive holds; tables
"""
