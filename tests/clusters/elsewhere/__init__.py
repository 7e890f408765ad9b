"""Workers on machines that share nothing with the submitter but an object store."""
