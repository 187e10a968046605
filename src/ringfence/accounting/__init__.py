"""What a release cost."""
