"""Allocation policies of lamps inside other people's searches.

`lamps.integrations.tune` is a scheduler for Ray Tune, `lamps.integrations.optuna` allocates
landmarks to the trials of an Optuna study. Both let a policy decide that `lamps.search` would use,
with several objectives, and neither needs a store: the state stays where Ray and Optuna keep it.
"""
