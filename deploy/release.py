#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists what a release is made of, for ./run release.

    release.py version              the version in CMakeLists.txt; fails if another file names another version
    release.py describe FOLDER      writes SHA256SUMS and tutti.spdx.json (SPDX 2.3) about the other files of the folder
"""
import datetime
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What is compiled into the libraries of wheels: the name, its Debian packages (the first that is installed), its licence.
CONTAINED = [
    ("boost", ("libboost1.81-dev", "libboost1.83-dev", "libboost1.88-dev", "libboost-dev"), "BSL-1.0"),
    ("cli11", ("libcli11-dev",), "BSD-3-Clause"),
    ("fmt", ("libfmt-dev",), "MIT"),
    ("liburing", ("liburing-dev",), "MIT"),
    ("nettle", ("nettle-dev",), "LGPL-3.0-or-later"),
    ("nlohmann-json", ("nlohmann-json3-dev",), "MIT"),
]


def version():
    found = re.search(r"^  VERSION (\d+\.\d+\.\d+)$", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    names = {"python/tutti/__init__.py": r'__version__ = "([\d.]+)"', "deploy/packages/vcpkg/tutti/vcpkg.json": r'"version": "([\d.]+)"',
             "deploy/packages/spack/packages/tutti/package.py": r'version\("([\d.]+)"\)'}
    names.update({path.relative_to(ROOT).as_posix(): r"/tutti:(\d[\d.]*\d)"
                  for pattern in ("README.md", "Dockerfile", "kubernetes/*.yaml") for path in ROOT.glob(f"deploy/{pattern}")})
    wrong = [f"{name} has version {other}, and CMakeLists.txt {found}" for name, pattern in names.items()
             for other in re.findall(pattern, (ROOT / name).read_text()) if other != found]
    if wrong:
        sys.exit("\n".join(wrong))
    return found


def installed(packages):
    for package in packages:
        done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout:
            return package, done.stdout
    sys.exit(f"none of {', '.join(packages)} is installed")


def commit():
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def checksum(algorithm, path):
    return hashlib.new(algorithm, path.read_bytes()).hexdigest()


def describe(folder):
    described = [path for path in sorted(folder.iterdir()) if path.name not in ("SHA256SUMS", "tutti.spdx.json")]
    source = commit()
    packages = [{"name": "tutti", "SPDXID": "SPDXRef-tutti", "versionInfo": version(), "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
                 "licenseDeclared": "Apache-2.0", "sourceInfo": f"commit {source}"}]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-tutti"}]
    for name, candidates, licence in CONTAINED:
        package, of_debian = installed(candidates)
        packages.append({"name": name, "SPDXID": f"SPDXRef-{name}", "versionInfo": of_debian, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
                         "licenseDeclared": licence, "sourceInfo": f"Debian package {package}"})
        relations.append({"spdxElementId": "SPDXRef-tutti", "relationshipType": "CONTAINS", "relatedSpdxElement": f"SPDXRef-{name}"})
    files = [{"fileName": f"./{path.name}", "SPDXID": f"SPDXRef-file-{i}",
              "checksums": [{"algorithm": name, "checksumValue": checksum(name, path)} for name in ("SHA1", "SHA256")]}
             for i, path in enumerate(described)]
    relations += [{"spdxElementId": file["SPDXID"], "relationshipType": "GENERATED_FROM", "relatedSpdxElement": "SPDXRef-tutti"} for file in files]
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"tutti-{version()}",
                "documentNamespace": f"urn:tutti:{version()}:{source}",
                "creationInfo": {"created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: deploy/release.py"]},
                "packages": packages, "files": files, "relationships": relations}
    spdx = folder / "tutti.spdx.json"
    spdx.write_text(json.dumps(document, indent=1) + "\n")
    (folder / "SHA256SUMS").write_text("".join(f"{checksum('SHA256', path)}  {path.name}\n" for path in [*described, spdx]))


if __name__ == "__main__":
    if sys.argv[1:] == ["version"]:
        print(version())
    elif len(sys.argv) == 3 and sys.argv[1] == "describe":
        describe(Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
