"""What opens a dataset: each library, in an environment that has it."""
