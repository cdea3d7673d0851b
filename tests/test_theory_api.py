"""What every public function of `theory` and `equivalence` promises: contract, docstring, running example, layers."""

import ast
import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

from olsen import equivalence, theory

CONTRACT = {
    "limiting_bias": "alpha gamma k eta",
    "limiting_variance": "alpha gamma sigma k eta",
    "limiting_risk": "alpha gamma sigma k eta mu",
    "optimal_alpha": "gamma sigma k eta",
    "optimal_mu": "alpha gamma sigma k eta",
    "ridge_risk": "lam gamma sigma",
    "optimal_ridge_risk": "gamma sigma",
    "optimal_ridge_penalty": "gamma sigma",
    "expected_risk": "n p n_features sigma k n_samples sampling design mu",
    "expected_bias": "n p n_features k",
    "expected_variance": "n p n_features sigma k",
    "pair_risk": "Sigma beta features_i features_j sigma n rows_i rows_j shared_rows",
    "covariance_risk": "Sigma beta alpha sigma n k eta rng",
    "required_members": "gamma sigma excess eta",
}
ALLOWED = {"numpy", "scipy", "math", "typing", "collections"}
PUBLIC = [(module, name) for module in (theory, equivalence) for name in module.__all__]
MODULES = [f"olsen.theory.{module.name}" for module in pkgutil.iter_modules(theory.__path__)] + ["olsen.equivalence"]


@pytest.mark.parametrize("name", CONTRACT)
def test_signature_keeps_the_contract(name):
    parameters = list(inspect.signature(getattr(theory, name)).parameters)
    promised = CONTRACT[name].split()
    assert [p for p in parameters if p in promised] == promised


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=lambda x: x if isinstance(x, str) else "")
def test_docstring_has_formula_status_and_example(module, name):
    text = inspect.getdoc(getattr(module, name))
    assert ":math:`" in text or ".. math::" in text
    assert "Status:" in text
    assert ">>>" in text


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module)
    assert failed == 0


def test_theory_imports_nothing_of_ours():
    for file in Path(theory.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, file.name
                names = [node.module or ""] if node.level == 0 else []
            assert all(name.split(".")[0] in ALLOWED for name in names), (file.name, names)


def test_all_is_sorted_and_complete():
    assert theory.__all__ == sorted(theory.__all__)
    public = {name for name, value in vars(theory).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert public == set(theory.__all__)
