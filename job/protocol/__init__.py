"""What the job tells of itself, and the socket it tells it on."""
