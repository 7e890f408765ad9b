"""The one file layer: `storage(path)` of `files.py` says what can be done with a path.

protocol.py       that, for disks and stores alike
local.py          files of this machine
paths.py          paths of this machine and of stores; parameters taken off
retry.py          what is tried again, and what the errors of stores mean
folders.py        changes of names on this machine, and the swap of two folders
arrow.py          what is in stores, by Arrow
buckets.py clients.py
                  what is written there, by the stores' own clients
s3.py gcs.py azure.py hdfs.py
                  each store, by Arrow and by its own client
remote.py         files there: read ahead, upload, remove
"""
