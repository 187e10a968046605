"""The epsilon and eta of single training examples."""
