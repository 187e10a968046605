"""What each example contributes to a step: its gradient and its information."""
