"""Files that survive a crash and are checked when they are read."""
