"""Figure 4: Fisher information loss against accuracy."""
