"""Publish a dataset whole, and decide who may replace it.

target.py           the one way to an output: look, prepare, publish, clean up; its runs
published.py        what is there, by its manifest
local.py            an output on a disk, which one run at a time holds
own_folder.py       the hidden folder beside that, and its lock
bucket.py           an output in an object store, which can rename nothing
earlier_rejects.py  the rejects of the dataset that is there
"""
