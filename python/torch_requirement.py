# SPDX-License-Identifier: Apache-2.0
"""For scikit-build-core: the wheel requires the minor version of PyTorch that it is built with."""

import importlib.metadata


def dynamic_metadata(field, settings):
    major, minor = importlib.metadata.version("torch").split("+")[0].split(".")[:2]
    return [f"torch=={major}.{minor}.*"]
