"""Tables of people: where the rows are, which cells they fall in, and how far one person can go."""
