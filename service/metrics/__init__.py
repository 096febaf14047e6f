"""The Prometheus metrics, computed from one JobStatus at each scrape."""
