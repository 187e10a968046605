"""Tests of what is known about layers."""
