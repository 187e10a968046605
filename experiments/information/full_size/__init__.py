"""Figure 4 at full size: a wide residual network, trained from scratch on images by the engine."""
