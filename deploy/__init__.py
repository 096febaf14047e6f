"""How the service is deployed."""
