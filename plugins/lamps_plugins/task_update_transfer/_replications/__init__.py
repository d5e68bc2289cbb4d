"""What the papers behind the transfers claim, measured again on real texts and small encoders."""
