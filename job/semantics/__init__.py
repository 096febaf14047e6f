"""The symmetric hash join in plain Python, for simulations and tests; never for production data."""
