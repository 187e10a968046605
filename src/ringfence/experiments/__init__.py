"""One thin file a figure: frozen settings in, rows out."""
