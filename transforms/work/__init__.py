"""What a run keeps beside its target: segments, receipts, rejects, split tables."""
