"""What experiments read: files of features with labels."""
