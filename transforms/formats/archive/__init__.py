"""Zip and tar files, read safely: images, tables, WebDataset samples in them.

members.py   the members of any archive, one after the other, within bounds
zip.py tar.py and the modules beside them
reader.py    what an archive holds: images.py, tables.py or webdataset.py
"""
