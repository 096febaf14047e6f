"""The symmetric hash join in plain Python: it explains, simulates and checks.

It carries no production data.
"""
