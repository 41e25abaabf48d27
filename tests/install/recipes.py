#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Checks the recipes in packaging/: recipes.py vcpkg|spack|conan SCRATCH

A recipe must name the version of version.hpp, options that the project has, and dependencies that its CMake files look
for. vcpkg's and Spack's are run with stand-ins for what these tools define; Conan runs its own. Ends with 77 where a
tool is missing."""
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGING = ROOT / "packaging"
TARGETS = (ROOT / "cmake" / "EspalierTargets.cmake").read_text(encoding="utf-8")
OFF = {"ESPALIER_BUILD_TESTS", "ESPALIER_BUILD_EXAMPLES", "ESPALIER_BUILD_BENCHMARKS"}

# Of each part that can be asked for: what find_package is called with in EspalierTargets.cmake.
LOOKED_FOR = {"core": ["Boost"], "mpi": ["MPI", "Boost mpi serialization"], "io": ["xtensor"], "cblas": ["CBLAS"]}


def check(holds, message):
    if not holds:
        sys.exit(message)


def version():
    header = (ROOT / "include" / "espalier" / "version.hpp").read_text(encoding="utf-8")
    return ".".join(re.search(rf"^#define ESPALIER_VERSION_{part} (\d+)$", header, re.MULTILINE)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def check_version(found):
    check(found == version(), f"the recipe's version is {found}, version.hpp's {version()}")


def minimum(package):
    """The version that EspalierTargets.cmake or CMakeLists.txt asks for."""
    if package == "cmake":
        text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        return re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", text)[1]
    return re.search(rf"find_package\({package} ([\d.]+)", TARGETS)[1]


def check_parts(named):
    """`named`: of each part, the packages its recipe asks for, in the names of LOOKED_FOR."""
    for part, packages in LOOKED_FOR.items():
        check(sorted(named.get(part, [])) == sorted(packages), f"{part} asks for {named.get(part)}, not for {packages}")
    check(set(named) == set(LOOKED_FOR), f"the recipe has {sorted(named)}")
    found = {f"Boost {c}".strip() if p == "Boost" else p
             for p, c in re.findall(r"find_package\((\w+)[ \d.]*(?:QUIET)?(?: COMPONENTS ([\w ]+))?\)", TARGETS)}
    for packages in LOOKED_FOR.values():
        check(found.issuperset(packages), f"EspalierTargets.cmake looks for {sorted(found)}, not for all of {packages}")


def check_options(settings):
    """`settings`: CMake's variables and what the recipe sets them to."""
    known = set(re.findall(r"^option\((\w+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE))
    check(known.issuperset(settings), f"no options of the project: {sorted(set(settings) - known)}")
    check(settings == {"ESPALIER_INSTALL": True, **dict.fromkeys(OFF, False)}, f"the recipe sets {settings}")


def vcpkg(scratch):
    port = PACKAGING / "vcpkg" / "espalier"
    manifest = json.loads((port / "vcpkg.json").read_text(encoding="utf-8"))
    check_version(manifest["version-semver"])
    check(manifest["name"] == port.name, f"the port {manifest['name']} lies in {port.name}/")
    names = [d if isinstance(d, str) else d["name"] for d in manifest["dependencies"]]
    check(names == sorted(names) and list(manifest["features"]) == sorted(manifest["features"]), "not in vcpkg's order")
    check(all(isinstance(d, str) or d.get("host") for d in manifest["dependencies"]), "a tool is not of the host")
    translation = {"openblas": "CBLAS", "xtensor": "xtensor", "mpi": "MPI"}
    core = [d for d in manifest["dependencies"] if isinstance(d, str)]
    check(core == ["boost-hana", "boost-headers"], f"core asks for {core}")  # the second has the target Boost::headers
    named = {"core": ["Boost"]}
    for feature, content in manifest["features"].items():
        check(set(content) == {"description", "dependencies"}, f"the feature {feature} has {sorted(content)}")
        boost = [d[len("boost-"):] for d in content["dependencies"] if d.startswith("boost-")]
        named[feature] = [translation[d] for d in content["dependencies"] if not d.startswith("boost-")]
        named[feature] += [f"Boost {' '.join(boost)}"] if boost else []
    check_parts(named)
    # The portfile, with functions that write down what they are called with.
    calls = scratch / "calls"
    functions = ["vcpkg_cmake_configure", "vcpkg_cmake_install", "vcpkg_cmake_config_fixup", "vcpkg_fixup_pkgconfig",
                 "vcpkg_install_copyright"]
    driver = "".join(f'function({f})\n  file(APPEND "{calls}" "{f};${{ARGN}}\\n")\nendfunction()\n' for f in functions)
    driver += f'set(CURRENT_PACKAGES_DIR "{scratch}/package")\ninclude("{port}/portfile.cmake")\n'
    (scratch / "driver.cmake").write_text(driver, encoding="utf-8")
    subprocess.run([os.environ.get("CMAKE_COMMAND", "cmake"), "-P", scratch / "driver.cmake"], check=True)
    called = {line.split(";")[0]: line.split(";")[1:] for line in calls.read_text(encoding="utf-8").splitlines()}
    check(list(called) == functions, f"the portfile calls {list(called)}")
    configure = called["vcpkg_cmake_configure"]
    check(configure[:3] == ["SOURCE_PATH", str(ROOT), "OPTIONS"], f"the portfile configures {configure[:3]}")
    check_options({name: value == "ON" for name, value in (o[2:].split("=") for o in configure[3:])})
    folder = re.search(r'set\(package_dir "\$\{CMAKE_INSTALL_DATADIR\}/(.*)"\)',
                       (ROOT / "cmake" / "install.cmake").read_text(encoding="utf-8"))[1]
    check(called["vcpkg_cmake_config_fixup"] == ["CONFIG_PATH", f"share/{folder}"], "the package's files lie elsewhere")
    check(pathlib.Path(called["vcpkg_install_copyright"][1]).is_file(), "the license is not there")


def spack(_):
    repository = PACKAGING / "spack" / "spack_repo" / "espalier"
    settings = (repository / "repo.yaml").read_text(encoding="utf-8")
    check(f"namespace: {repository.name}\n" in settings, "the repository lies in a folder of another name")
    # Spack's module, with directives that write down what they are called with.
    directives = types.ModuleType("spack.package")
    calls = {name: [] for name in ("license", "version", "variant", "depends_on")}
    for name, seen in calls.items():
        setattr(directives, name, lambda *values, seen=seen, **named: seen.append((values, named)))
    base = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    base.CMakePackage = type("CMakePackage", (), {"define": lambda self, name, value: (name, value)})
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[directives.__name__], sys.modules[base.__name__] = directives, base
    recipe = runpy.run_path(str(repository / "packages" / "espalier" / "package.py"))["Espalier"]
    check(recipe.git == ROOT.as_uri(), f"the sources are {recipe.git}, not {ROOT.as_uri()}")
    check([values for values, _ in calls["version"]] == [(version(),)], f"versions: {calls['version']}")
    check_options(dict(recipe().cmake_args()))
    variants = [values[0] for values, _ in calls["variant"]]
    needs = [(spec[0], named.get("when", "")) for spec, named in calls["depends_on"] if named.get("type") != "build"]
    check(all(when.lstrip("+") in [""] + variants for _, when in needs), f"a condition is no variant: {needs}")
    named = {part: [] for part in ["core"] + variants}
    for spec, when in needs:
        package, flags = re.match(r"([a-z]+)(?:@[\d.:]+)?(.*)", spec).groups()
        name = {"boost": "Boost", "mpi": "MPI", "xtensor": "xtensor", "openblas": "CBLAS"}[package]
        libraries = " ".join(re.findall(r"\+(\w+)", flags))
        named[when.lstrip("+") or "core"].append(f"{name} {libraries}".strip())
    check_parts(named)
    specs = [spec[0] for spec, _ in calls["depends_on"]]
    for package, cmake_name in (("boost", "Boost"), ("cmake", "cmake")):
        check(f"{package}@{minimum(cmake_name)}:" in specs, f"{package}: the project asks for {minimum(cmake_name)}")


def installed(package):
    """The version of a Debian package that is here, or None. Conan is told that the machine has it."""
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", found.stdout)
    return match[1] if match else None


def conan(scratch):
    tool = shutil.which("conan")
    if not tool:
        print("conan is not installed")
        sys.exit(77)
    machine = {name: installed(package) for name, package in
               (("boost", "libboost-dev"), ("xtensor", "libxtensor-dev"), ("openblas", "libopenblas-openmp-dev"))}
    if not all(machine.values()) or not shutil.which("mpicxx"):
        print(f"this machine's own dependencies are not all there: {machine}")
        sys.exit(77)
    environment = {**os.environ, "CONAN_HOME": str(scratch / "home")}
    recipe = PACKAGING / "conan"

    def run(*arguments):
        return subprocess.run([tool, *map(str, arguments)], env=environment, check=True, stdout=subprocess.PIPE,
                              text=True).stdout

    facts = json.loads(run("inspect", recipe, "--format=json"))
    check_version(facts["version"])
    run("profile", "detect")
    profile = scratch / "profile"
    profile.write_text("include(default)\n[settings]\ncompiler.cppstd=20\n[platform_requires]\n" +
                       "".join(f"{name}/{found}\n" for name, found in machine.items()), encoding="utf-8")
    # With every option: test_package asks CMake for the components.
    options = [f"-o=espalier/*:{name}=True" for name in facts["options"]]
    added = {"mpi": set(), "io": {"xtensor"}, "cblas": {"openblas"}}  # Boost.MPI is of Boost
    check(set(added) == set(facts["options"]), f"the recipe's options are {sorted(facts['options'])}")
    for name, packages in added.items():
        chosen, expected = [f"-o=espalier/*:{name}=True"], {"boost"} | packages
        graph = json.loads(run("graph", "info", recipe, "-nr", "-pr:a", profile, *chosen, "--format=json"))
        needs = graph["graph"]["nodes"]["0"]["dependencies"].values()
        direct = {need["ref"].split("/")[0] for need in needs if need["direct"]}
        check(direct == expected, f"with {chosen} it depends on {sorted(direct)}")
    check(f"boost/[>={minimum('Boost')} " in (recipe / "conanfile.py").read_text(encoding="utf-8"),
          f"Boost: the project asks for {minimum('Boost')}")
    print(run("create", recipe, "-nr", "-pr:a", profile, *options, "-c",
              f"tools.cmake.cmake_layout:test_folder={scratch}/test_package"))
    # What the recipe gave CMake, as CMake keeps it.
    caches = list((scratch / "home").rglob("CMakeCache.txt"))
    check(len(caches) == 1, f"caches: {caches}")
    cache = caches[0].read_text(encoding="utf-8")
    check_options({name: value == "ON" for name, value in
                   re.findall(r"^(ESPALIER_(?:BUILD_\w+|INSTALL)):BOOL=(\w+)$", cache, re.MULTILINE)})


def main():
    scratch = pathlib.Path(sys.argv[2]).resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    sys.dont_write_bytecode = True
    {"vcpkg": vcpkg, "spack": spack, "conan": conan}[sys.argv[1]](scratch)


main()
