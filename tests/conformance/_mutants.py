"""A correct method and its mutants: each breaks one promise of the contract by one edit.

The correct method is the example plugin's ridge regression; its family is used as a loose folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "data/third_party_plugin/lamps_example_plugin/curve_fitting"
METHOD = "polynomial_ridge"

FIT = '        """Solve (1) for the first examples of the trial\'s order."""\n'
EVALUATE = '        """Error, and one number per weight."""\n'
SAVE = '        """The weights as JSON; numpy.polynomial.legendre.legval evaluates them."""\n'
GUARD = """        if self.fidelity_ is not None and fidelity <= self.fidelity_:
            return self
"""
STANDS = "        self.fidelity_ = fidelity\n"
SOLVED = "self.weights_ = solve("
MEASURED = "return problem.measure(predictor(self._member()), len(self.weights_), split)"
PARAMS_END = "alpha: float = hp.real"
INIT = "        super().__init__(params)\n"

Edit = tuple[str, str]

MUTANTS: dict[str, tuple[str, tuple[Edit, ...]]] = {
    # name: (the check that must notice, what is edited)
    "learns_early": ("check_init_is_inert", ((INIT, INIT + "        self.fidelity_ = 0.0\n"),)),
    "slow_init": (
        "check_init_is_inert",
        ((INIT, INIT + "        __import__('time').sleep(0.6)\n"),),
    ),
    "other_name": (
        "check_name_is_that_of_the_file",
        (
            (FIT, FIT),
            ("    def __init__", "    name = classmethod(lambda cls: 'x')\n\n    def __init__"),
        ),
    ),
    "no_source": (
        "check_docstring_names_the_source",
        (('title="Ridge Regression', 'title="Lasso Regression'),),
    ),
    "bad_default": ("check_defaults_lie_in_the_space", (("hp.integer(5,", "hp.integer(50,"),)),
    "plain_field": (
        "check_defaults_lie_in_the_space",
        ((PARAMS_END, "plain: int = 3\n    " + PARAMS_END),),
    ),
    "tuple_param": (
        "check_params_survive_json",
        ((PARAMS_END, 'pair: tuple = hp.fixed((1, 2), doc="Pair.")\n    ' + PARAMS_END),),
    ),
    "any_params": (
        "check_unknown_params_are_refused",
        (
            (
                "    def __init__",
                "    @classmethod\n    def from_params(cls, values):\n"
                "        known = ('degree', 'alpha')\n"
                "        return cls(Params(**{k: v for k, v in values.items() if k in known}))\n\n"
                "    def __init__",
            ),
        ),
    ),
    "made_up_check": (
        "check_expected_failures_exist",
        (("tags=Tags(cheap=True),", 'expected_failures={"check_x": "because"},'),),
    ),
    "no_reason": (
        "check_expected_failures_exist",
        (("tags=Tags(cheap=True),", 'expected_failures={"check_same_fidelity_is_a_no_op": ""},'),),
    ),
    "incomplete": (
        "check_objectives_are_complete_and_finite",
        ((MEASURED, 'return Evaluation({"val_error": 0.5})'),),
    ),
    "nan_at_zero": (
        "check_objectives_are_complete_and_finite",
        (
            (
                MEASURED,
                'return Evaluation({"val_error": float("nan") if self.fidelity_ == 0 else 0.5, '
                '"n_params": 1.0})',
            ),
        ),
    ),
    "learns_late": (
        "check_evaluate_changes_nothing",
        ((EVALUATE, EVALUATE + "        self.weights_ = self.weights_ + 0.1\n"),),
    ),
    "costless": ("check_cost_is_measured", ((MEASURED, 'return Evaluation({"val_error": 0.5})'),)),
    "unsaved": (
        "check_saved_member_is_not_empty",
        ((SAVE, SAVE + "        return\n"),),
    ),
    "saved_elsewhere": (
        "check_saved_member_is_not_empty",
        ((SAVE, SAVE + "        (directory.parent / 'x').write_text('x')\n"),),
    ),
    "fits_again": (
        "check_same_fidelity_is_a_no_op",
        ((GUARD, ""), (SOLVED, "self.weights_ = self.weights_ + solve(")),
    ),
    "steps_back": (
        "check_same_fidelity_is_a_no_op",
        ((GUARD, GUARD.replace("return self", "self.fidelity_ = 0.0; return self")),),
    ),
    "path_dependent": (
        "check_fit_equals_partial_fits",
        ((SOLVED, "self.weights_ = 0.5 * self.weights_ + 0.5 * solve("),),
    ),
    "fits_halfway": (
        "check_fit_equals_partial_fits",
        (
            (
                "    def __init__",
                "    def fit(self, problem, *, rng):\n"
                "        return self.partial_fit(problem, problem.fidelities[1], rng=rng)\n\n"
                "    def __init__",
            ),
        ),
    ),
    # Right after every landmark that was looked at, and in one leap; wrong in ``fit``.
    "must_be_looked_at": (
        "check_fit_equals_partial_fits",
        (
            (SOLVED, "self.weights_ = (0.5 if vars(self).get('unseen') else 1.0) * solve("),
            (STANDS, "        self.unseen = True\n" + STANDS),
            (EVALUATE, EVALUATE + "        self.unseen = False\n"),
        ),
    ),
    "writes_to_data": (
        "check_problem_is_untouched",
        ((FIT, FIT + '        problem.points["train"][0, 1] += 1.0\n'),),
    ),
    "peeks": (
        "check_test_split_stays_closed",
        ((FIT, FIT + '        problem.split("test")\n'),),
    ),
    "global_numpy": (
        "check_global_seeds_are_untouched",
        ((FIT, FIT + "        np.random.rand()\n"),),
    ),
    "global_random": (
        "check_global_seeds_are_untouched",
        ((EVALUATE, EVALUATE + "        __import__('random').random()\n"),),
    ),
    "prints": ("check_stdout_stays_silent", ((FIT, FIT + "        print('fitting')\n"),)),
    "prints_natively": (
        "check_stdout_stays_silent",
        ((FIT, FIT + "        __import__('os').write(1, b'fitting')\n"),),
    ),
    "forgets": (
        "check_state_survives_a_checkpoint",
        (('= state["weights"], state', '= 0 * state["weights"], state'),),
    ),
    "own_chance": (
        "check_same_seed_gives_the_same_numbers",
        ((FIT, FIT + "        rng = np.random.default_rng()\n"),),
    ),
    "process_chance": (
        "check_another_process_gives_the_same_numbers",
        ((FIT, FIT + "        rng = np.random.default_rng(__import__('os').getpid())\n"),),
    ),
    "resumes_otherwise": (
        "check_kill_and_resume_equals_no_interruption",
        (
            (INIT, INIT + "        self.momentum_ = 0.0\n"),
            (
                "        self.fidelity_ = fidelity\n",
                "        self.fidelity_ = fidelity\n"
                "        self.weights_ = self.weights_ + self.momentum_\n"
                "        self.momentum_ += 0.01\n",
            ),
        ),
    ),
}


def write_mutants(root: Path) -> None:
    """The family and its methods as a loose plugin folder, with one more file per mutant."""
    folder = root / "example_curve_fitting"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / f"{METHOD}.py").read_text(encoding="utf-8")
    for name, (_, edits) in MUTANTS.items():
        text = source
        for old, new in edits:
            assert old in text, f"mutant {name}: the example has no {old!r} any more"
            text = text.replace(old, new, 1)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
