"""Two datasets, compared record by record."""
