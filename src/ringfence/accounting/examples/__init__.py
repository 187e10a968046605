"""What single examples cost."""
