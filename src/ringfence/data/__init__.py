"""What experiments read: images, and files of features with labels."""
