"""Fisher information loss."""
