"""Linear probes as scikit-learn estimators."""
