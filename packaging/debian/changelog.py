# SPDX-License-Identifier: Apache-2.0
"""Prints Debian's changelog of a version.

Usage: changelog.py VERSION MAINTAINER CHANGELOG.md
"""
import email.utils
import os
import pathlib
import sys

version, maintainer, source = sys.argv[1:]
when = os.environ.get("SOURCE_DATE_EPOCH") or pathlib.Path(source).stat().st_mtime
print(f"gpushared ({version}) unstable; urgency=medium\n\n"
      f"  * What users see is in CHANGELOG.md of the source.\n\n"
      f" -- {maintainer}  {email.utils.formatdate(float(when))}")
