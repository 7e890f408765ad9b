"""Placement of rows: identity, splits, shards, order, leakage.

placement.py splitting.py    row -> hash -> split, shard, order
content.py      the hash of what a row says, for splits of rows without a key
strata.py       shares that are exact within each class
shard_rows.py   the rows of a shard in their order
leakage.py      the same item in two splits
"""
