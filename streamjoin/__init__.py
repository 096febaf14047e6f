"""What users import: `streamjoin.testing`. Job and service are programs, not a library."""
