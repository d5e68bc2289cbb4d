"""What papers claim about the methods, measured again."""
