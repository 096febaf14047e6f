"""What a join may be: the YAML as frozen models, and everything its values may say."""
