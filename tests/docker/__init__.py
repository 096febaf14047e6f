"""Tests of the real images and of docker-compose.yml: `make test-docker`, not `make test`."""
