"""Content of dead letters, and the commands that list and replay them."""
