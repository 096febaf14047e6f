"""The job: reads a spec, plans the join, runs it on Spark."""
