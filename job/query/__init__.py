"""The running query: its life, and what is known of it."""
