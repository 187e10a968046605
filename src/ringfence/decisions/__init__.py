"""What is released when somebody has to decide: counts, votes, winners and means."""
