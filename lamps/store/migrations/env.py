"""What Alembic runs: migrations on the connection and in the transaction that the store gives."""

from alembic import context

from lamps.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
)
context.run_migrations()
