"""More methods for the family ``replay``."""
