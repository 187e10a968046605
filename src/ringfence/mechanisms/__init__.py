"""What is released: one law a file."""
