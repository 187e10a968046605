"""Turns rows into image files, CSV files and pages. Computes no privacy."""
