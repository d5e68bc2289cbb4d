"""What an outsider adds to lamps."""
