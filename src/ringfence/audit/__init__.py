"""Attacks on releases and training runs of your own: lower bounds on epsilon, and canaries."""
