"""Wheels for Linux by zig's compiler, whatever machine this is, and the kernels compiled for the other systems.

    python tests/dist/build_wheels.py wheels

`make wheels` calls it in an environment with ziglang, build, wheel and auditwheel. Wheels of this machine's kind can be tested
here; other wheels are built, and tested on such a machine (cibuildwheel's configuration does so).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from platform import machine

import ziglang

ROOT = Path(__file__).parents[2]
ZIG = str(Path(ziglang.__file__).with_name("zig"))
WHEELS = {  # zig's name of the system -> Python's name, and the tag of the wheel
    "x86_64-linux-gnu.2.17": ("linux-x86_64", "manylinux_2_17_x86_64"),
    "aarch64-linux-gnu.2.17": ("linux-aarch64", "manylinux_2_17_aarch64"),
    "x86_64-linux-musl": ("linux-x86_64", "musllinux_1_2_x86_64"),
    "aarch64-linux-musl": ("linux-aarch64", "musllinux_1_2_aarch64"),
}
COMPILED_ONLY = ["aarch64-macos", "x86_64-macos", "x86_64-windows-gnu", "aarch64-windows-gnu"]


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
        done = subprocess.run([sys.executable, "-m", *tagged], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{target}: {done.stdout}{done.stderr}")
        Path(folder).mkdir(exist_ok=True)
        for tagged_wheel in Path(temporary).glob(f"*{tag}.whl"):
            shutil.copy(tagged_wheel, folder)


def compile_only(target):
    """Whether the kernels compile, for all instruction sets of a system."""
    from setup import FLAGS, X86_SETS  # what the installation uses

    sets = {**(X86_SETS if target.startswith("x86_64") else {}), "plain": []}
    for name, flags in sets.items():
        macros = [f"-DKERNELS=kernels_{name}", f'-DINSTRUCTION_SET="{name}"']
        source = str(ROOT / "src/olsen/_kernel/kernels.c")
        command = [ZIG, "cc", "-target", target, "-mcpu=baseline", "-c", source]
        with tempfile.TemporaryDirectory() as folder:  # zig writes beside a null device
            subprocess.run([*command, *FLAGS, *macros, *flags], check=True, cwd=folder)


def main(folder):
    for target, (platform, tag) in WHEELS.items():
        build(target, platform, tag, folder)
    for wheel in sorted(Path(folder).glob("*.whl")):
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
    for target in COMPILED_ONLY:
        compile_only(target)
        print(f"{target}: kernels compile; no wheel was built")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(*sys.argv[1:])
