"""The one file layer: `storage(path)` of `files.py` says what can be done with a path.

protocol.py       that, for disks and stores alike
local.py          files of this machine
paths.py          paths of this machine and of stores, and entries of files
retry.py          what is tried again, and what the errors of stores mean
folders.py        changes of names on this machine, and the swap of two folders
buckets.py        what is written in stores, alike for all; HDFS
s3.py, google_azure.py
                  each cloud, by Arrow and by its own client
stores.py         the connections to each place, and what is there
remote.py         files there: read ahead, upload, remove
"""
