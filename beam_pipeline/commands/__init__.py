"""The sub-commands: declared in `group`, done in one module each, printed."""
