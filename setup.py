"""Builds the C++ core, ``torchtpu._C``. Everything else about the package is in pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # importing torch must not load the package that is being built
os.environ.setdefault("MAX_JOBS", str(os.cpu_count() or 1))

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).parent
SOURCES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob("*.cpp"))

CORE = CppExtension(
    "torchtpu._C",
    SOURCES,
    include_dirs=[str(ROOT)],
    # PyTorch's own headers give the two warnings that are turned off, in every file.
    extra_compile_args=[
        "-std=c++17", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wno-c++20-extensions", "-Wno-interference-size"],
)

# `make setup` installs the Python part first and builds the core in place after it: pip would build in a folder that it
# throws away, and the next change to one file would compile all of them again.
setup(
    ext_modules=[] if os.environ.get("SKIP_CORE") == "1" else [CORE],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=True)},
)
