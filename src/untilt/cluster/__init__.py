"""Training where no machine holds the whole log: XGBoost in many workers, with our objective."""
