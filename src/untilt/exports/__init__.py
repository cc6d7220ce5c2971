"""Rankers for the engines that people already run, and judgments from clicks."""
