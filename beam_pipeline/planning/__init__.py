"""What a job will do, decided before anything is written. Never Beam."""
