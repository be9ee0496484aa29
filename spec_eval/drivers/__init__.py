"""Prompts into records."""
