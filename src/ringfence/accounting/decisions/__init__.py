"""What decisions cost."""
