"""Tests that need Spark and no broker."""
