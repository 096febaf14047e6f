"""Response bodies of the HTTP API, one module per resource."""
