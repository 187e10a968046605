"""Private softmax regression on features."""
