"""Figure 5a: yes/no votes, their errors and their cost."""
