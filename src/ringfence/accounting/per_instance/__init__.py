"""What full-batch releases cost for the dataset at hand."""
