"""The import direction lmcore <- figures <- ui <- pages, app, read from the imports themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ("lmcore", "figures", "ui", "pages")
FORBIDDEN = {
    "lmcore": {"streamlit", "plotly"},
    "figures": {"streamlit", "torch", "transformers"},
    "pages": {"torch", "plotly"},
}


def imports(path: Path) -> set[str]:
    """Top-level names of every import in a file, wherever it stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", ORDER)
def test_imports_run_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    later = set(ORDER[ORDER.index(package) + 1 :]) | {"app", "tests", "benchmarks"}
    for path in files:
        bad = imports(path) & (later | FORBIDDEN.get(package, set()))
        assert not bad, f"{path.relative_to(ROOT)} imports {bad}"


@pytest.mark.parametrize(
    "module",
    ["lmcore", "lmcore.config", "lmcore.shapes", "lmcore.costs", "lmcore.errors", "lmcore.families", "lmcore.sampling"],
)
def test_calculators_load_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_files_stay_readable() -> None:
    """400 lines is the wall: over it a second idea has moved in."""
    code = [p for package in ORDER for p in (ROOT / package).rglob("*.py")]
    code += (ROOT / "assets" / "components").rglob("*.js")
    long = {str(p.relative_to(ROOT)): n for p in code if (n := len(p.read_text().splitlines())) > 400}
    assert not long
