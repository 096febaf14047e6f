"""Proposes a spec for two topics from a sample of their records: `streamjoin init`."""
