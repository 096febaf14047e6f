"""Bodies of the HTTP API that are not models of the protocol, one module per resource."""
