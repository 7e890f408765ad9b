"""Publish a dataset whole, and decide who may replace it.

target.py           the output directory: what may be there
own_folder.py       the hidden folder beside it, and its lock
work_folder.py      a job's folder in that: held by one run, recovered by the next
shared_run.py       a run whose workers come and go, so that none can hold that folder
earlier_rejects.py  the rejects of the dataset that is there
bucket/             the same in an object store, which can rename nothing
"""
