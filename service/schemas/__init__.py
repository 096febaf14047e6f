"""Bodies of the HTTP API that only the service needs, one module per resource."""
