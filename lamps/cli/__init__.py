"""The command line: thin shells over `lamps.api`, one file per command or noun."""
