"""The sub-commands, one module each, and what they print."""
