"""Build the extension module ``olsen._kernel._native``; all other facts of the package are in
pyproject.toml.

The kernels are compiled once for each instruction set and linked into one module, which chooses
when it is loaded. It uses the limited API, so one wheel serves every Python from 3.11 on. GCC 12,
clang and zig's compiler can build it. This file is also the build backend: where no C compiler is
found, it asks the installer for the one in PyPI's ``ziglang``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.build_meta import *  # noqa: F403
from setuptools.build_meta import get_requires_for_build_editable as _editable
from setuptools.build_meta import get_requires_for_build_wheel as _wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

KERNEL = "src/olsen/_kernel"
# Contraction is off because the sources say where products are fused with sums: results do not
# depend on the compiler.
FLAGS = [
    "-std=c11",
    "-O3",
    "-g0",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fvisibility=hidden",
]
X86_SETS = {
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma"],
    "avx2": ["-mavx2", "-mfma"],
}
SANITIZERS = [
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
]
MISSING = (
    "olsen needs a C compiler (GCC 12 or later, or clang) and found none{}. Install one, or name it"
    " in the variable CC, or `pip install ziglang`, whose compiler is then used."
)


def command() -> list[str]:
    """The C compiler: the one named by CC, else the one Python was built with, cc, gcc, clang, else
    zig's.
    """
    if named := shlex.split(os.environ.get("CC", "")):
        return named if shutil.which(named[0]) else []
    for words in (shlex.split(sysconfig.get_config_var("CC") or "cc"), ["cc"], ["gcc"], ["clang"]):
        if shutil.which(words[0]):
            return words
    try:
        import ziglang
    except ImportError:
        return []
    return [str(Path(ziglang.__file__).with_name("zig")), "cc", "-mcpu=baseline"]


def get_requires_for_build_wheel(config_settings=None):
    return [
        *_wheel(config_settings),
        *([] if command() or os.environ.get("CC") else ["ziglang>=0.13"]),
    ]


def get_requires_for_build_editable(config_settings=None):
    return [
        *_editable(config_settings),
        *([] if command() or os.environ.get("CC") else ["ziglang>=0.13"]),
    ]


class BuildKernel(build_ext):
    """Compile ``kernels.c`` for every instruction set of the machine, then the module that chooses
    among them.
    """

    def build_extension(self, ext: Extension) -> None:
        found = command()
        if not found:
            raise CompileError(
                MISSING.format(f": CC is {os.environ['CC']}" if os.environ.get("CC") else "")
            )
        self.force = self.compiler.force = True  # what lies there may be of another compiler
        if os.name != "nt":
            named = {"compiler_so": [*found, "-fPIC", *_given("CPPFLAGS"), *_given("CFLAGS")]}
            named["linker_so"] = [*found, *_linking(), *_given("LDFLAGS")]
            self.compiler.set_executables(
                **{key: shlex.join(words) for key, words in named.items()}
            )
        x86 = self.plat_name.endswith(("x86_64", "amd64"))  # of the machine that the wheel is for
        ext.define_macros = [*ext.define_macros, *([("X86_SETS", "1")] if x86 else [])]
        ext.extra_objects = []
        for name, flags in {**(X86_SETS if x86 else {}), "plain": []}.items():
            macros = [("KERNELS", f"kernels_{name}"), ("INSTRUCTION_SET", f'"{name}"')]
            folder = str(Path(self.build_temp) / name)
            flags = [*ext.extra_compile_args, *flags]
            ext.extra_objects += self.compiler.compile(
                [f"{KERNEL}/kernels.c"], output_dir=folder, macros=macros, extra_postargs=flags
            )
        super().build_extension(ext)


def _linking() -> list[str]:
    """How a module is linked: as Python says, without its own compiler and the folders of its own
    machine.
    """
    words, own = (shlex.split(sysconfig.get_config_var(name) or "") for name in ("LDSHARED", "CC"))
    words = words[len(own) :] if own and words[: len(own)] == own else words[1:] or ["-shared"]
    return [word for word in words if not word.startswith(("-L", "-Wl,-rpath"))]


def _given(variable: str) -> list[str]:
    return shlex.split(os.environ.get(variable, ""))


def main() -> None:
    sanitize = SANITIZERS if os.environ.get("OLSEN_SANITIZE") else []
    one_for_all = not sysconfig.get_config_var(
        "Py_GIL_DISABLED"
    )  # Pythons without the lock have no limited API
    module = Extension(
        "olsen._kernel._native",
        [f"{KERNEL}/module.c"],
        depends=[str(path) for path in Path(KERNEL).glob("*.[ch]")],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if one_for_all else [],
        py_limited_api=one_for_all,
        extra_compile_args=[*FLAGS, *sanitize],
        libraries=[] if sys.platform == "win32" else ["m"],  # fmax; Python itself need not link it
        extra_link_args=sanitize[3:],
    )
    options = {"bdist_wheel": {"py_limited_api": "cp311"}} if one_for_all else {}
    if sys.platform == "win32":  # Microsoft's compiler does not know the vector extensions
        options["build_ext"] = {"compiler": "mingw32"}
    setup(ext_modules=[module], cmdclass={"build_ext": BuildKernel}, options=options)


if __name__ == "__main__":
    main()
