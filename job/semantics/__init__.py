"""The symmetric hash join in plain Python: it explains, simulates and checks; it carries no production data."""
