"""Deployment of job and service."""
