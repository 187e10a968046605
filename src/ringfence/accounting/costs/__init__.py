"""What releases cost, in a form in which the costs of different accounts add up."""
