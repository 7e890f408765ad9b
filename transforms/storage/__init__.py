"""The one file layer: `storage(path)` of `files.py` says what can be done with a path.

protocol.py       that, for disks and stores alike
local.py          files of this machine
paths.py          paths of this machine and of stores; parameters taken off
retry.py          what is tried again, and what the errors of stores mean
folders.py        changes of names on this machine, and the swap of two folders
buckets.py        what is written in stores, by their own clients
s3.py gcs.py azure.py hdfs.py
                  each store, by Arrow and by its own client
clients.py        the connections to each place
arrow.py          what is in stores, by Arrow
remote.py         files there: read ahead, upload, remove
"""
