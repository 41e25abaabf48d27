# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""The header that a file includes first, precompiled: hundreds of small programs are compiled for what a compiler says
of them, and most of each is one of a few headers. Only the list of include files above a message changes.

And what a compiler said of one of them, kept for who asks next: the documents quote many.
"""
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess

FIRST_INCLUDE = re.compile(r"^#include <(.*?)>$")


def first_include(path):
    """What stands between the brackets, if the first line of the file that is no comment includes something."""
    with open(path) as file:
        for line in file:
            if line.strip() and not line.startswith("//"):
                found = FIRST_INCLUDE.match(line.rstrip())
                return found.group(1) if found else None
    return None


def newest_header(folders):
    """When a header below these folders changed last, and how many there are: one may have gone."""
    times = [os.stat(os.path.join(place, name)).st_mtime_ns
             for folder in folders for place, _, names in os.walk(folder) for name in names if name.endswith((".hpp", ".ipp"))]
    return f"{max(times, default=0)} {len(times)}"


@contextlib.contextmanager
def locked(path):
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def flags_with_first_include(compiler, flags, path, folder):
    """`flags` for `compiler`, with those before them that make it read the precompiled header.

    `folder` keeps it for the next call. Where it cannot be made, `flags` as they are: the file's own compilation will
    tell what is wrong.
    """
    header = first_include(path)
    own = [flag[2:] for flag in flags if flag.startswith("-I")]
    source = next((found for found in (os.path.join(place, header or "") for place in own) if os.path.isfile(found)), None)
    if source is None:
        return flags
    key = hashlib.sha256("\n".join([compiler, header, *flags]).encode()).hexdigest()[:16]
    place = os.path.join(folder, f"{os.path.basename(compiler)}-{key}")
    clang = "clang" in os.path.basename(compiler)
    target = os.path.join(place, header + (".pch" if clang else ".gch"))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with locked(os.path.join(place, "made")) as made:
        stamp = newest_header(own)
        made.seek(0)
        if made.read() != stamp or not os.path.isfile(target):
            made.truncate(0)
            run = subprocess.run([compiler, *flags, "-w", "-x", "c++-header", source, "-o", target], check=False,
                                 stderr=subprocess.DEVNULL)
            if run.returncode != 0:
                return flags
            if not clang and not os.path.lexists(os.path.join(place, header)):
                os.symlink(os.path.abspath(source), os.path.join(place, header))  # for what includes it once more
            made.write(stamp)
    return ["-include-pch", target, *flags] if clang else [f"-I{place}", *flags]


def place_of_diagnostics(folder, compiler, path, case, includes):
    """The file in `folder` for what `compiler` says of `case` in `path`: another one after any change to either, or to a
    header below `includes`."""
    with open(path) as file:
        parts = [os.path.basename(compiler), str(os.stat(shutil.which(compiler)).st_mtime_ns), os.path.abspath(path), case,
                 file.read(), newest_header(includes)]
    return os.path.join(folder, hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32] + ".txt")


def keep_diagnostics(place, text):
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(f"{place}.{os.getpid()}", "w") as file:
        file.write(text)
    os.replace(file.name, place)


def kept_diagnostics(place):
    """What was kept there, or None."""
    try:
        with open(place) as file:
            return file.read()
    except OSError:
        return None
