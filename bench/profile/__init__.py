"""Profiles the CPU time of a program while it reads a backlog."""
