"""Build hook of hatchling: with KAFKALOG_KERNELS set, a wheel carries compiled kernels (make wheel).

They are compiled for a baseline processor of this platform, by this Python and the Numba that is installed, into
`compiled/` of their package, where kafkalog_spark.kernels.compile_cache looks. Another Python does not install such a
wheel; with another Numba, or a lesser processor, the kernels are compiled when they are needed, as with a plain wheel.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernels(BuildHookInterface[Any]):  # type: ignore[misc]
    """KAFKALOG_KERNELS: the groups of kernels, as `kafkalog_spark.warm --only` takes them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        groups = os.environ.get("KAFKALOG_KERNELS")
        if version == "editable" or not groups:
            return
        self.folder = tempfile.TemporaryDirectory()
        # one file of what is being built, and not the package, whose imports may be missing here
        owner = run_path(os.path.join(self.root, "kafkalog_spark", "kernels", "cache_directories.py"))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((self.root, os.path.join(self.root, "broker"))),
            "NUMBA_CACHE_DIR": self.folder.name,
            "NUMBA_CPU_NAME": owner["BASELINE"][platform.machine()],
            "NUMBA_CPU_FEATURES": "",
        }
        subprocess.run([sys.executable, "-m", "kafkalog_spark.warm", "--only", groups], env=environment, check=True)
        for file in sorted(Path(self.folder.name).glob("*/*.nb[ci]")):
            package = file.parent.name.partition(".")[0]
            build_data["force_include"][str(file)] = f"{package}/compiled/{file.parent.name}/{file.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()
