"""Placement of rows: identity, splits, shards, order, leakage.

hashes.py       row -> hash
content.py      the hash of what a row says, for splits of rows without a key
splitting.py    hash -> split, under a rule and a lock
strata.py       shares that are exact within each class
sharding.py     hash -> shard; the rows of a shard in their order
leakage.py      the same item in two splits
"""
