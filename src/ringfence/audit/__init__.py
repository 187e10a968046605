"""Attacks that must not beat the claims: confidence lower bounds on what is printed as upper bounds."""
