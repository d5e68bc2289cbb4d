"""What was measured again about the clusterers of this family."""
