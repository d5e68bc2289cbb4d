"""What the papers of this family claim, measured again on models that exist everywhere."""
