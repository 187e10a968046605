"""Sweeps: many training runs that can be resumed, on one machine or on many."""
