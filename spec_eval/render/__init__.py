"""Rows into text and pictures."""
