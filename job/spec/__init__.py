"""The spec of a join: YAML as frozen models, and the rules for its values."""
