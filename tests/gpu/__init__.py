"""Tests that need a CUDA device (`make gpu`)."""
