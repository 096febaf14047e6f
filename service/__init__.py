"""The service: HTTP API, metrics and status page of a job. A process of its own, without Spark."""
