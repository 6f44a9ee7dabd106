# SPDX-License-Identifier: Apache-2.0
"""Creates a container image from files of this machine, without docker or a network.

The archive can be loaded with `ctr -n k8s.io images import ARCHIVE`, `podman load` or `docker load`. The build is
reproducible: equal files result in an equal archive.
"""
import argparse
import hashlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile

# Mount points and writable directories.
DIRECTORIES = ("dev", "etc", "proc", "run", "sys", "tmp", "var")
# Default user if the pod sets none; the uid of nobody.
USER = "65534:65534"
ARCHITECTURE = "amd64"  # The only supported architecture.


def libraries(file: pathlib.Path):
    """Paths of the libraries that the file needs; empty unless it is dynamically linked."""
    told = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    if "not found" in told.stdout:
        raise SystemExit(f"make_image: {file}: libraries are missing here:\n{told.stdout}")
    return re.findall(r"(?:=> |^\t)(/\S+) \(0x", told.stdout, re.MULTILINE)


def add(archive: tarfile.TarFile, name: str, content: bytes = b"", mode: int = 0o644, kind: bytes = tarfile.REGTYPE):
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.size = mode, kind, len(content)
    archive.addfile(entry, io.BytesIO(content))


def layer_of(files: dict) -> bytes:
    directories = {str(parent) for path in files for parent in pathlib.PurePath(path).parents} | set(DIRECTORIES)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for directory in sorted(directories - {"."}):
            add(archive, directory, mode=0o1777 if directory == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        for path, file in sorted(files.items()):
            add(archive, path, file.read_bytes(), 0o755 if file.stat().st_mode & 0o111 else 0o644)
    return layer.getvalue()


def files_of(pairs: list) -> dict:
    files = {}
    for pair in pairs:
        path, separator, file = pair.partition("=")
        if file.endswith("/"):
            file += pathlib.PurePath(path).name
        if not separator or not path.startswith("/") or not pathlib.Path(file).is_file():
            raise SystemExit(f"make_image: '{pair}' rejected; allowed: /PATH=FILE, of a file that is here")
        for name in (path, *libraries(pathlib.Path(file))):
            files[name.lstrip("/")] = pathlib.Path(file if name == path else name).resolve()
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default="", help="what runs where the pod says nothing, such as '/usr/bin/sleep infinity'")
    parser.add_argument("name", help="of the image, NAME[:TAG]")
    parser.add_argument("archive", help="where it is written")
    parser.add_argument("files", nargs="+", metavar="/PATH=FILE",
                        help="FILE becomes PATH in the image; of a FILE that ends in / it has the name, too; "
                             "programs bring the shared libraries that they load")
    asked = parser.parse_args()
    files = files_of(asked.files)
    layer = layer_of(files)
    config = json.dumps({
        "architecture": ARCHITECTURE, "os": "linux",
        "config": {"User": USER, "Env": ["PATH=/usr/bin"], "Cmd": asked.command.split()},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    tag = asked.name if ":" in asked.name else asked.name + ":latest"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(asked.archive, "w") as archive:
        for name, content in ((config_name, config), ("layer.tar", layer), ("manifest.json", manifest)):
            add(archive, name, content)
    print(f"{asked.archive}: {tag}, {len(files)} files, {len(layer) >> 20} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
