"""An Optuna study with two objectives whose trials are trained further only where it pays."""

import optuna

from lamps.integrations.optuna import LampsAllocator

study = optuna.create_study(directions=["minimize", "minimize"])
pool = LampsAllocator(study, n_trials=20, landmarks=(1, 2, 4, 8, 16))
spent = 0
for trial, epochs in pool:
    width, lr = trial.suggest_int("width", 8, 512, log=True), trial.suggest_float("lr", 0.01, 1)
    error = 1 / width**0.5 + (0.3 - lr) ** 2 + 1 / epochs  # train until `epochs` here
    pool.tell(trial, (error, 0.1 + width / 100), cost_s=epochs / 2)
    spent += 1
print(f"{spent} of {20 * 5} landmarks; front: {[t.params for t in study.best_trials]}")
