"""What is known about layers: one file for each kind."""
