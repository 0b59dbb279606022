# SPDX-License-Identifier: Apache-2.0
"""For scikit-build-core: the wheel requires the minor versions of PyTorch that it is built for."""

import importlib.metadata
import os
import pathlib
import re


def dynamic_metadata(field, settings):
    paths = os.environ.get("TUTTI_TORCH_PATHS")
    if paths:
        texts = [(pathlib.Path(path) / "version.py").read_text() for path in paths.split(":")]
        versions = [re.search(r"__version__ = '([^']*)'", text)[1] for text in texts]
    else:
        versions = [importlib.metadata.version("torch")]
    minors = sorted(tuple(map(int, version.split(".")[:2])) for version in versions)
    (low, first), (high, last) = minors[0], minors[-1]
    return [f"torch>={low}.{first},<{high}.{last + 1}"]
