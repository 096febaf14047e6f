"""deploy/k8s on a real API server: `make test-kubernetes`, not `make test`."""
