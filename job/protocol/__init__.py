"""Messages between job and service, and the control socket that carries them."""
