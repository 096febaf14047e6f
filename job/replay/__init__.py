"""The cut of a change, and the replay with which the new query begins. Pure."""
