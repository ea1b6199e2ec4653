"""The build hook for the C++ kernels; everything else about the package is in pyproject.toml.

The library has a plain C ABI and no part of Python in it, so one wheel per platform serves every Python. Without a
compiler the installation goes on, and evenflow uses torch alone.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNELS = Path(__file__).parent / "src" / "evenflow" / "kernels"


def kernel_builder() -> ModuleType:
    """kernels/build.py by its path: the package is not installed yet."""
    spec = importlib.util.spec_from_file_location("evenflow_kernel_build", KERNELS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildKernels(build_ext):
    def build_extension(self, ext: Extension) -> None:
        builder = kernel_builder()
        try:
            builder.build_kernels(Path(self.get_ext_fullpath(ext.name)).parent)
        except builder.BuildError as error:
            sys.stderr.write(f"evenflow: C++ kernels not built, torch will do their work more slowly: {error}\n")

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")[:-1]) / kernel_builder().LIBRARY_NAME)


class AnyPythonWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=PlatformDistribution,
    ext_modules=[Extension("evenflow.kernels.library", sources=[], optional=True)],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": AnyPythonWheel},
)
