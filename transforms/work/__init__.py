"""What a run keeps beside its target: segments, receipts, rejects, reports.

store.py receipts.py    finished work, also for later runs
rejects.py            rejected items
split_tables.py       tables that decide splits
worker_check.py       what is asked of workers of an engine, and their stamps
"""
