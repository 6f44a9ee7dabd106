# SPDX-License-Identifier: Apache-2.0
"""Debian's Hashcat recovers a password from its hash, for four hash types, after its self-test of each kernel."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

# Hashcat uses the program's directory for all files if all of Hashcat's data is there.
USR = pathlib.Path(sys.prefix) / "debian/usr"
HOME = USR / "share/hashcat"
LIBRARIES = (USR / "lib/x86_64-linux-gnu", pathlib.Path(sysconfig.get_path("purelib")) / "nvidia/cu13/lib")
MODES = (("0", "md5"), ("100", "sha1"), ("1400", "sha256"), ("1700", "sha512"))
PASSWORD = "gpus7"

shutil.copy(USR / "bin/hashcat", HOME)
where = os.environ["LD_LIBRARY_PATH"] + "".join(f":{directory}" for directory in LIBRARIES)
scratch = pathlib.Path(os.environ["HOME"])
(scratch / "words").write_text(f"first\n{PASSWORD}\nlast\n")
for mode, name in MODES:
    digest = hashlib.new(name, PASSWORD.encode()).hexdigest()
    for attack in (("-a", "0", digest, scratch / "words"), ("-a", "3", digest, "gpus?d"))[:2 if mode == "0" else 1]:
        command = [HOME / "hashcat", "-m", mode, "--potfile-disable", "--quiet", "-O", *attack]
        ran = subprocess.run(command, cwd=HOME, env={**os.environ, "LD_LIBRARY_PATH": where}, capture_output=True, text=True)
        said = ran.stdout + ran.stderr
        assert ran.returncode == 0 and f"{digest}:{PASSWORD}" in said, f"{name}: {ran.returncode}\n{said}"
        assert "ATTENTION" not in said, said
