"""The service: HTTP API, metrics and status page of a job. A separate process, without Spark."""
