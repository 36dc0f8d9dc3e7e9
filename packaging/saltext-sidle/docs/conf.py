"""Settings of sphinx-build."""

import re
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "src"))

project = "saltext.sidle"
author = "The sidle developers"
copyright = author
release = re.search(r'^version = "(.+)"$', (HOME / "pyproject.toml").read_text(encoding="utf-8"), re.M)[1]

extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton", "myst_parser"]
exclude_patterns = ["_build"]
autodoc_default_options = {"members": True, "member-order": "bysource", "exclude-members": "beacon"}
# The pages need no Salt.
autodoc_mock_imports = ["salt"]
html_theme = "furo"
html_title = f"saltext.sidle {release}"
