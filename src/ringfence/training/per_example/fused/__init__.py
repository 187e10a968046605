"""One ordinary backward pass in which every layer adds up the clipped gradients of its examples itself."""
