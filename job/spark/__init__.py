"""Spark as the job has it: its JVM and session, its listener, and what it has no call for."""
