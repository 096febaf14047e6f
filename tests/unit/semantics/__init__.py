"""The join in plain Python, rule by rule. No JVM."""
