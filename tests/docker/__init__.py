"""The images and docker-compose.yml, run for real: `make test-docker`, not `make test`."""
