"""The README's section "Add a policy", run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
SECTION = (ROOT / "README.md").read_text().split("## Add a policy")[1].split("\n## ")[0]
PLAIN, COMPILED = re.findall(r"```python\n(.*?)```", SECTION, re.S)
PRINTED = re.findall(r"```text\n(.*?)```", SECTION, re.S)[0]
# With a kappa whose sums are exact, so that ties are the same for both.
COMPARED = (
    PLAIN.split("worlds = ")[0]
    + """
import greedy as compiled

worlds, runs, rounds = [world([0.45, 0.35, 0.25, 0.15, 0.05], [1.0, 0.5, 0.25])], np.zeros(3, int), np.array([10, 1000])
slow, fast = (simulate(player(policy), worlds, runs, rounds, 0).regret for policy in (plain("greedy", greedy), compiled.POLICY))
np.testing.assert_allclose(slow, fast, rtol=1e-12)
"""
)


def run(code: str, folder: Path) -> str:
    """What a program prints."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout


def test_the_plain_policy_prints_what_the_readme_says(tmp_path: Path) -> None:
    assert run(PLAIN, tmp_path) == PRINTED


def test_the_file_of_the_readme_is_the_plain_policy_compiled(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(COMPILED)
    run(COMPARED, tmp_path)
    (tmp_path / "greedy.py").unlink()
    assert run(PLAIN, tmp_path) == PRINTED  # a policy that is gone again is in nobody's way
