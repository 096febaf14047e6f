"""How the images are built and what runs in them beside job and service."""
