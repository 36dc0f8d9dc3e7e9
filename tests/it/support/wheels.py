"""Write small wheels into a directory: extras that fit a release of Salt, and extras that do not."""

import pathlib
import sys
import zipfile

WHEELS = [
    # name, requirements, Python, text of its package, text of its execution module
    ("saltext-good", [], None, "", "def go():\n    return 'it goes'\n"),
    ("saltext-newer", [], ">=3.99", "", "def go():\n    return 1\n"),
    ("saltext-strict", ["PyYAML<5"], None, "", "def go():\n    return 1\n"),
    ("saltext-broken", [], None, "", "import nowhere\n\ndef go():\n    return 1\n"),
    ("saltext-dead", [], None, "import nowhere\n", "def go():\n    return 1\n"),
]


def main():
    """Write all of them."""
    directory = pathlib.Path(sys.argv[1])
    for name, needs, python, package, module in WHEELS:
        package_name = name.replace("-", "_")
        info = f"{package_name}-1.0.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "License: MIT"]
        lines += [f"Requires-Dist: {need}" for need in needs] + ([f"Requires-Python: {python}"] if python else [])
        files = {
            f"{package_name}/__init__.py": package,
            f"{package_name}/modules/{package_name}.py": module,
            f"{info}/METADATA": "\n".join(lines) + "\n\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[salt.loader]\n{name} = {package_name}\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(directory / f"{package_name}-1.0-py3-none-any.whl", "w") as wheel:
            for path, content in files.items():
                wheel.writestr(path, content)


main()
