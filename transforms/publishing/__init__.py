"""Publish a dataset whole, and decide who may replace it.

target.py               the output directory: what may be there
work_folder.py          the folder beside it: held by one run, recovered by the next
renaming.py             all files of a target, or none, on this machine
bucket.py bucket_runs.py bucket_publication.py versions.py
                        the same in an object store, which can rename nothing
leftovers.py            what dead runs have left
"""
