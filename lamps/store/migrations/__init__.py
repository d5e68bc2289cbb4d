"""Alembic migrations of the store, shipped with the package and run by `lamps.store.schema`."""
