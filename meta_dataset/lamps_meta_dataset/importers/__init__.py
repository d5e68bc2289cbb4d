"""Importers of public tables: each reads a local copy that the user names; nothing is shipped."""
