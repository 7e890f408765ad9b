"""Targets in object stores: hold, check, and publish by writing the manifest.

target.py       what may be at the target
runs.py         which run holds it, and the jobs that nobody waits for
publication.py  writes the manifest, which makes the dataset appear
"""
