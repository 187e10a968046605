"""Tests of the fused pass."""
