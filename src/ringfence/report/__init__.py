"""Rows to pictures and files. Computes no privacy."""
