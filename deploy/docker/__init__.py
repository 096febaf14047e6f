"""Files for docker-compose.yml, and the load generator of the demo image."""
