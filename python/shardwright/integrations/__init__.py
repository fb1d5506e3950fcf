"""Trainers of others with models that run by a plan; each module imports its trainer, and nothing here imports them."""
