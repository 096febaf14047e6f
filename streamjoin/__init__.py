"""What users import: `streamjoin.testing`. Job and service are programs, not a library; in the
wheel they are `streamjoin.job` and `streamjoin.service` (hatch_build.py)."""
