"""Figure 1: what each mechanism gives away against theta."""
