"""Ray Tune with two metrics: trials pause at landmarks, and a learned policy says who goes on."""

import tempfile
from pathlib import Path

from ray import tune

from lamps.integrations.tune import LampsScheduler


def train(config: dict[str, float]) -> None:
    """Report error and latency after each epoch, with a checkpoint to come back to."""
    start = tune.get_checkpoint()
    done = int(Path(start.path, "epoch").read_text()) if start else 0
    for epoch in range(done + 1, 17):
        error = 1 / config["width"] ** 0.5 + 0.5 * epoch ** -config["lr"]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            kept = tune.Checkpoint.from_directory(folder)
            tune.report({"val_error": error, "latency_ms": config["width"] / 99}, checkpoint=kept)


space = {"width": tune.lograndint(8, 512), "lr": tune.uniform(0.01, 1.0)}
scheduler = LampsScheduler({"val_error": "min", "latency_ms": "min"}, max_t=16, size_attr="width")
tuner = tune.Tuner(
    tune.with_resources(train, {"cpu": 1}),
    param_space=space,
    tune_config=tune.TuneConfig(num_samples=12, scheduler=scheduler),
)
results = tuner.fit()
print(results.get_dataframe()[["training_iteration", "val_error", "latency_ms"]])
