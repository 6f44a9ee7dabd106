# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions list every command and option of the programs, whose help fits 100 columns.

Usage: texts_test.py SOURCE_DIR BIN_DIR
"""
import functools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = (pathlib.Path(argument) for argument in (sys.argv.pop(1), sys.argv.pop(1)))
PACKAGING = SOURCE / "packaging"
# Programs with options, and the sections of their pages. The last two are built only if gRPC is available.
SECTIONS = {program: section for program, section in (("gpushared", 8), ("gpusharedctl", 1), ("gpushared-web", 8),
                                                      ("gpushared-kubernetes", 8), ("gpushared-dra", 8)) if (BIN / program).exists()}
sys.path[:0] = [str(PACKAGING / "completions"), str(PACKAGING / "man")]
import fill  # noqa: E402
import generate  # noqa: E402


def page(name):
    return fill.filled(PACKAGING / "man" / f"{name}.scd", BIN / "gpushared")


@functools.cache
def described(program):
    return list(generate.describe(BIN / program))


@functools.cache
def made(shell, program):
    command = [sys.executable, PACKAGING / "completions/generate.py", shell, BIN / program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Help(unittest.TestCase):
    def test_lines_fit_100_columns(self):
        for program in SECTIONS:
            for path, _, _, _ in described(program):
                for line in generate.help_of(BIN / program, path.split()[1:]).splitlines():
                    self.assertLessEqual(len(line), 100, f"{path}: {line}")


class ManualPages(unittest.TestCase):
    def test_every_command_and_option_is_in_the_page(self):
        for program, section in SECTIONS.items():
            text = page(f"{program}.{section}")
            for path, commands, options, _ in described(program):
                for word in commands:  # In bold, as in the heading of its paragraph.
                    self.assertRegex(text, rf"\*[^*\n]*(?<![\w-]){re.escape(word)}(?![\w-])[^*\n]*\*", f"{path}: {word}")
                for word in [option for option in options if option.startswith("--")]:
                    if word in ("--socket", "--json") and " " in path:
                        continue  # The page lists these options only once.
                    self.assertRegex(text, rf"(?<![\w-]){re.escape(word)}(?![\w-])", f"{path}: {word}")

    def test_every_command_of_mps_is_in_the_page(self):
        told = subprocess.run([BIN / "gpushared-mps-control", "--help"], capture_output=True, text=True, check=True).stdout
        commands = re.findall(r"^  ([a-z]\w+)", told, re.MULTILINE)
        self.assertEqual(len(commands), 23)
        for command in commands:
            self.assertRegex(page("gpushared-mps-control.1"), rf"\*{command}\*", command)

    def test_every_key_of_the_configuration_is_in_the_page(self):
        example = (PACKAGING / "gpushared.toml").read_text(encoding="utf-8")
        keys = set(re.findall(r"^(?:# )?(\w+) = ", example, re.MULTILINE)) | set(re.findall(r"^#   (\w+)  ", example, re.MULTILINE))
        self.assertGreater(len(keys), 25)
        for key in keys - {"everyone"}:
            self.assertRegex(page("gpushared.toml.5"), rf"\*{key}\*", key)


class Policies(unittest.TestCase):
    # The places that document the values of --policy. server/config/options.cpp is another one, which tests/server
    # checks.
    PLACES = ["packaging/gpushared.toml", "README.md", "scheduler/README.md"]
    ALIASES = ["equal_share", "fixed_share"]  # NVIDIA's names, which the README omits.

    def test_every_policy_is_documented(self):
        told = subprocess.run([BIN / "gpushared", "--policy", "none"], capture_output=True, text=True, check=False).stderr
        names = re.search(r"allowed: ([\w, ]+)", told).group(1).split(", ")
        self.assertIn("priority", names)
        texts = {place: (SOURCE / place).read_text(encoding="utf-8") for place in self.PLACES}
        texts["gpushared.8"] = page("gpushared.8")
        for place, text in texts.items():
            expected = [name for name in names if place != "README.md" or name not in self.ALIASES]
            missing = [name for name in expected if not re.search(rf"\b{name}\b", text)]
            self.assertEqual(missing, [], f"policies that {place} does not name")


class Completions(unittest.TestCase):
    # The words so far, and the expected completions of the last one.
    CASES = [
        (["gpusharedctl", ""], {"status", "ps", "doctor", "endpoint", "client"}),
        (["gpusharedctl", "client", ""], {"set", "terminate"}),
        (["gpusharedctl", "client", "set", "4", "--class", ""], {"high", "normal", "low"}),
        (["gpusharedctl", "--socket", "/nowhere", "dr"], {"drain"}),
        (["gpusharedctl", "top", "--e"], {"--every"}),
        (["gpusharedctl", "endpoint", "lease", "--client"], {"--client-memory", "--clients-max"}),
        (["gpusharedctl", "run", "--fall"], {"--fallback"}),
        (["gpusharedctl", "run", "--fallback", ""], {"native"}),
        (["gpusharedctl", "run", "--mode", ""], {"submit", "gate"}),
        (["gpushared-web", "--l"], {"--listen"}),
    ]

    def test_bash_offers_what_fits(self):
        for words, expected in self.CASES:
            function = f"_{words[0]}"
            script = (f"{made('bash', words[0])}\nCOMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); {function}; "
                      "printf '%s\\n' \"${COMPREPLY[@]}\"")
            told = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
            offered = set(told.stdout.split())
            self.assertLessEqual(expected, offered, words)
            self.assertTrue(all(word.startswith(words[-1]) for word in offered), words)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here")
    def test_zsh_offers_what_fits(self):
        for words, expected in self.CASES:
            with tempfile.NamedTemporaryFile("w", suffix=".zsh") as script:
                # Functions that print replace those of zsh's completion system.
                script.write("compadd() { shift; print -l -- $@ }\n_files() { print FILES }\n"
                             f"words=({' '.join(repr(word) for word in words)}); CURRENT={len(words)}; PREFIX=$words[-1]\n"
                             + made("zsh", words[0]))
                script.flush()
                told = subprocess.run(["zsh", "-f", script.name], capture_output=True, text=True, check=True)
            self.assertLessEqual(expected, set(told.stdout.split()), words)

    def test_all_commands_and_options_are_there(self):
        self.assertGreaterEqual(len(SECTIONS), 3)
        for program in SECTIONS:
            for shell in ("bash", "zsh"):
                text = made(shell, program)
                for path, commands, options, _ in described(program):
                    for word in commands + options:
                        self.assertIn(word, text, f"{shell}: {path}")


if __name__ == "__main__":
    unittest.main()
