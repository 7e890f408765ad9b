"""Placement of rows: identity, splits, shards, order, class ids, leakage.

identity.py placement.py splitting.py    row -> hash -> split, shard, order
content.py     the hash of what a row says, for splits of rows without a key
strata.py      shares that are exact within each class
vocabulary.py  the ids of class names, which later runs must not change
leakage.py     the same item in two splits
"""
