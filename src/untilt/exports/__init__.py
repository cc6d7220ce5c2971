"""Rankers for the engines that people already run, and judgments from clicks."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)
