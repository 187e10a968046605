"""Many training runs, resumable, on one machine or many."""
