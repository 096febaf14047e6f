"""deploy/k8s and deploy/helm on a real API server: `make test-kubernetes`, not `make test`."""
