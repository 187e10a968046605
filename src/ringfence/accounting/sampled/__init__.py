"""What releases of Poisson samples cost."""
