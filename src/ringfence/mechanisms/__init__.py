"""What is released: one file for each law."""
