"""Ray Tune with two metrics: trials pause at landmarks, and a learned policy says who goes on."""

from ray import tune

from lamps.integrations.tune import LampsScheduler


class Train(tune.Trainable):
    """One trial; a paused one gives up its place and comes back from its checkpoint."""

    def setup(self, config: dict[str, float]) -> None:
        """Build the model."""
        self.epoch = 0

    def step(self) -> dict[str, float]:
        """Train one epoch and measure."""
        self.epoch += 1
        error = 1 / self.config["width"] ** 0.5 + (0.3 - self.config["lr"]) ** 2 + 1 / self.epoch
        return {"val_error": error, "latency_ms": 0.1 + self.config["width"] / 100}

    def save_checkpoint(self, folder: str) -> dict[str, int]:
        """Keep what training needs."""
        return {"epoch": self.epoch}

    def load_checkpoint(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.epoch = state["epoch"]


space = {"width": tune.lograndint(8, 512), "lr": tune.uniform(0.01, 1.0)}
scheduler = LampsScheduler({"val_error": "min", "latency_ms": "min"}, max_t=16, size_attr="width")
config = tune.TuneConfig(num_samples=12, scheduler=scheduler)
results = tune.Tuner(Train, param_space=space, tune_config=config).fit()
print(results.get_dataframe()[["training_iteration", "val_error", "latency_ms"]])
