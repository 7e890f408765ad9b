"""What a person sees: words, tables, progress and messages."""
