"""Links distributions of this Python, with all that they declare to need, into a virtual environment: it then has them and nothing else.

argv: the folder of the environment, the names. What the environment has already stays. stdout: the names of what was linked.
"""

import importlib.metadata as metadata
import pathlib
import re
import sys


def needed(name, found):
    """The distribution and those that it declares, without extras; by normalized names."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return
    try:
        found[key] = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # for another system or version of Python
        return
    for requirement in found[key].requires or []:
        if "extra ==" not in requirement:
            needed(re.match(r"[\w.-]+", requirement)[0], found)


def link(distribution, site):
    """Links each file or folder that the distribution has right below its site-packages."""
    tops = {pathlib.PurePath(str(file)).parts[0] for file in distribution.files or []}
    for top in sorted(tops - {"..", "__pycache__"}):
        target = site / top
        if not target.exists():
            target.symlink_to(pathlib.Path(distribution.locate_file(top)).resolve())


def main():
    folder, *names = sys.argv[1:]
    [site] = pathlib.Path(folder).glob("lib/python3.*/site-packages")
    found = {}
    for name in names:
        needed(name, found)
    for distribution in found.values():
        link(distribution, site)
    print(" ".join(sorted(found)))


main()
