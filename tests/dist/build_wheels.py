"""Wheels by zig's compiler, whatever machine this is: for Linux, and, untested, for macOS and Windows.

    python tests/dist/build_wheels.py wheels

`make wheels` calls it in an environment with ziglang, build, wheel and auditwheel. The wheel for this machine is tested there;
the other wheels for Linux are for machines of the same kind of system. Wheels for macOS and Windows come into the folder
`untested` below: they are complete, but no machine was there to load them. A release takes those of cibuildwheel instead,
which tests each of its wheels.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from platform import machine

import ziglang

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "src/olsen/_kernel"
ZIG = str(Path(ziglang.__file__).with_name("zig"))
WHEELS = {  # zig's name of the system -> Python's name, and the tag of the wheel
    "x86_64-linux-gnu.2.17": ("linux-x86_64", "manylinux_2_17_x86_64"),
    "aarch64-linux-gnu.2.17": ("linux-aarch64", "manylinux_2_17_aarch64"),
    "x86_64-linux-musl": ("linux-x86_64", "musllinux_1_2_x86_64"),
    "aarch64-linux-musl": ("linux-aarch64", "musllinux_1_2_aarch64"),
}
UNTESTED = {  # zig's name of the system -> the tag of the wheel
    "aarch64-macos.11.0": "macosx_11_0_arm64",
    "x86_64-macos.11.0": "macosx_11_0_x86_64",
    "x86_64-windows-gnu": "win_amd64",
    "aarch64-windows-gnu": "win_arm64",
}


def build(target, platform, tag, folder):
    """One wheel. Zig names the oldest libc it runs with; auditwheel, which knows this machine's kind only, agrees."""
    environment = {**os.environ, "CC": f"{ZIG} cc -target {target} -mcpu=baseline", "_PYTHON_HOST_PLATFORM": platform}
    for old in (ROOT / "build").glob("*.*-*"):  # what a former build left: it would go into the wheel
        shutil.rmtree(old)
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", temporary]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(temporary).glob("*.whl")
        if tag == f"manylinux_2_17_{machine()}":
            tagged = ["auditwheel", "repair", "--plat", tag, "--wheel-dir", temporary, str(wheel)]
        else:
            tagged = ["wheel", "tags", "--remove", "--platform-tag", tag, str(wheel)]
        run_module(*tagged)
        folder.mkdir(exist_ok=True)
        for tagged_wheel in Path(temporary).glob(f"*{tag}.whl"):
            shutil.copy(tagged_wheel, folder)


def build_untested(target, tag, wheel, folder):
    """A wheel for another system: a wheel for Linux, whose compiled module is replaced."""
    with tempfile.TemporaryDirectory() as temporary:
        run_module("wheel", "unpack", "--dest", temporary, str(wheel))
        (unpacked,) = Path(temporary).iterdir()
        (module,) = (unpacked / "olsen/_kernel").glob("_native*.so")
        module.unlink()
        name = "_native.pyd" if "windows" in target else "_native.abi3.so"
        compile_module(target, module.with_name(name), Path(temporary) / "objects")
        run_module("wheel", "pack", "--dest-dir", temporary, str(unpacked))
        (packed,) = Path(temporary).glob("*.whl")
        run_module("wheel", "tags", "--remove", "--platform-tag", tag, str(packed))
        folder.mkdir(exist_ok=True)
        shutil.copy(*Path(temporary).glob(f"*{tag}.whl"), folder)


def compile_module(target, module, folder):
    """The extension module of another system, in the way of setup.py."""
    from setup import FLAGS, X86_SETS  # what the installation uses

    folder.mkdir()
    compiler = [ZIG, "cc", "-target", target, "-mcpu=baseline", *FLAGS]
    x86 = X86_SETS if target.startswith("x86_64") else {}
    objects = []
    for name, flags in {**x86, "plain": []}.items():
        macros = [f"-DKERNELS=kernels_{name}", f'-DINSTRUCTION_SET="{name}"']
        objects.append(str(folder / f"{name}.o"))
        zig(*compiler, *flags, *macros, "-c", KERNEL / "kernels.c", "-o", objects[-1], folder=folder)
    compiler += ["-DPy_LIMITED_API=0x030B0000", *(["-DX86_SETS=1"] if x86 else []), f"-I{headers(folder)}"]
    compiler += [str(KERNEL / "module.c")]
    if "windows" in target:
        zig(*compiler, "-E", "-o", folder / "module.i", folder=folder)
        library = ["-s", import_library(target, folder / "module.i")]
    else:  # Python's own names are found in the program that loads the module
        library = ["-undefined", "dynamic_lookup"]
    zig(*compiler, *objects, "-shared", *library, "-o", module, folder=folder)


def headers(folder):
    """Python's headers, with the facts of another system."""
    copied = Path(shutil.copytree(sysconfig.get_path("include"), folder / "include"))
    shutil.copy(Path(__file__).with_name("pyconfig.h"), copied)
    return copied


def import_library(target, preprocessed):
    """The library through which Windows finds the functions of the limited API in python3.dll.

    It has all names of the headers: the linker takes those that the module uses.
    """
    folder = preprocessed.parent
    names = sorted(set(re.findall(r"\bPy[A-Z]\w+", preprocessed.read_text(encoding="utf-8"))))
    exports = [f"    {name}{' DATA' * name.startswith('PyExc_')}" for name in names]
    definitions = folder / "python3.def"
    definitions.write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *exports, ""]), encoding="utf-8")
    kind = "i386:x86-64" if target.startswith("x86_64") else "arm64"
    zig(ZIG, "dlltool", "-d", definitions, "-l", folder / "python3.lib", "-m", kind, folder=folder)
    return folder / "python3.lib"


def zig(*command, folder):
    """Run zig in a folder of its own: it writes beside what it is told to write."""
    subprocess.run(list(map(str, command)), check=True, cwd=folder)


def run_module(*command):
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def main(name):
    folder = Path(name).resolve()
    for target, (platform, tag) in WHEELS.items():
        build(target, platform, tag, folder)
    (linux,) = folder.glob("*manylinux_2_17_x86_64.whl")
    for target, tag in UNTESTED.items():
        build_untested(target, tag, linux, folder / "untested")
    for wheel in sorted(folder.rglob("*.whl")):
        print(f"{wheel.relative_to(folder)}: {wheel.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(*sys.argv[1:])
