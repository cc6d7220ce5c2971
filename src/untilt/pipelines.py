"""Objectives and data for a LightGBM or XGBoost pipeline of your own."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)
