"""What the papers behind the methods claim, measured again on real texts."""
