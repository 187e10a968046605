"""Features of images, extracted with a frozen network."""
