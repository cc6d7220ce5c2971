"""Losses and their gradients on collapsed pair statistics. Arrays only, never a log."""
