"""Kill points, schedules, the determinism matrix, fuzzing and memory."""
