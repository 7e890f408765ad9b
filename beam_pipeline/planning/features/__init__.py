"""The features of a job: inferred from columns, overridden by the spec."""
