"""What the file layer is built on; the rest of the library uses `transforms.files`.

paths.py          paths of this machine and of stores; parameters taken off
retry.py          what is tried again, how often and for how long
folders.py        changes of names on this machine, and the swap of two folders
file_systems.py   a connection to each place, by Arrow
object_store.py   what stores can do beyond that, and how they fail
s3_client.py gcs_client.py object_clients.py
                  by their own clients, where those are installed
remote.py         files there: list, read ahead, upload, remove
"""
