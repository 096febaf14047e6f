"""Models of the HTTP API that the service and the commands share, and a client of the job."""
