# SPDX-License-Identifier: Apache-2.0
"""Generates a shell's completions for a program from its help.

Usage: generate.py bash|zsh PROGRAM

Runs the program and each of its commands with --help.
"""
import pathlib
import re
import subprocess
import sys

# Placeholders in the help of options and arguments whose values are paths.
FILES = re.compile(r"\b(PATH|FILE|DIRECTORY)\b")


def help_of(program, words):
    told = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True, timeout=30)
    return told.stdout


def sections(text):
    """Lines of each section with a heading such as "Options:"."""
    found, heading = {}, None
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z]\w+:", line):
            heading = line[:-1]
        elif line.startswith("  ") and heading:
            found.setdefault(heading, []).append(line)
        else:
            heading = None
    return found


def describe(program, words=()):
    """Rows (path, commands, options, values). Values are listed by option; "" is for positional arguments."""
    name = pathlib.Path(program).name
    parts = sections(help_of(program, words))
    commands = [match.group(1) for line in parts.get("Subcommands", ()) if (match := re.match(r"  (\w[\w-]*) ", line))]
    options, values = [], {}
    for line in parts.get("Options", ()):
        match = re.match(r"  ((?:-\w,)?--[\w-]+|-\w)(.*)", line)
        if not match:
            continue  # Continuation of a description.
        flags, rest = match.group(1).split(","), match.group(2)
        options += flags
        # "Excludes: --columns" does not describe a value.
        declared = re.split(r"  |\bExcludes:", rest)[0].replace("REQUIRED", "")
        choices = re.search(r"\{([^}]*)\}", declared)
        for flag in flags:
            if choices:
                values[flag] = choices.group(1).split(",")
            elif FILES.search(declared):
                values[flag] = ["FILES"]
            elif declared.strip():
                values[flag] = ["ANY"]
    if any(FILES.search(line) for line in parts.get("Positionals", ())):
        values[""] = ["FILES"]
    if words and words[-1] == "run" or words == ("doctor",):
        values[""] = ["PROGRAM"]
    rows = [(" ".join((name, *words)), commands, options, values)]
    for command in commands:
        rows += describe(program, (*words, command))
    return rows


def tables(rows, entry):
    """Three tables by command, with entries in the shell's format."""
    filled = {"cmds": {}, "opts": {}, "vals": {}}
    for path, commands, options, values in rows:
        filled["cmds"][path] = " ".join(commands)
        filled["opts"][path] = " ".join(options)
        for flag, allowed in values.items():
            filled["vals"][f"{path} {flag or '-'}"] = " ".join(allowed)
    lines = []
    for name, table in filled.items():
        lines += [f"  local -A {name}=("] + ["    " + entry.format(key, text) for key, text in table.items()] + ["  )"]
    return "\n".join(lines)


BASH = """# bash completion of {name}, generated from its --help
_{name}() {{
{tables}
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} path={name} i word allowed
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    # The words after -- belong to another program.
    if [[ $word == -- ]]; then
      declare -F _command_offset >/dev/null && _command_offset $((i + 1))
      return
    fi
    [[ -n ${{opts["$path $word"]:-}} ]] && path+=" $word"
  done
  allowed=${{vals["$path $prev"]:-${{vals["{name} $prev"]:-}}}}
  case $allowed in
    "") ;;
    ANY) return ;;
    FILES) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$allowed" -- "$cur"); return ;;
  esac
  if [[ $cur == -* || -z ${{cmds[$path]}}${{vals["$path -"]:-}} ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${{opts[$path]}} ${{opts[{name}]}}" -- "$cur")
  elif [[ ${{vals["$path -"]:-}} == FILES ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -W "${{cmds[$path]}}" -- "$cur")
  fi
}}
complete -o filenames -F _{name} {name}
"""

ZSH = """#compdef {name}
# Generated from its --help.
_{name}() {{
{tables}
  local pathway={name} i word key allowed
  for ((i = 2; i < CURRENT; i++)); do
    word=${{words[i]}}
    # The words after -- belong to another program.
    if [[ $word == -- ]]; then
      shift $i words
      ((CURRENT -= i))
      _normal
      return
    fi
    key="$pathway $word"
    [[ -n ${{opts[$key]}} ]] && pathway=$key
  done
  key="$pathway ${{words[CURRENT-1]}}"
  allowed=${{vals[$key]}}
  key="{name} ${{words[CURRENT-1]}}"
  allowed=${{allowed:-${{vals[$key]}}}}
  key="$pathway -"
  case $allowed in
    "") ;;
    ANY) return ;;
    FILES) _files; return ;;
    *) compadd -- ${{=allowed}}; return ;;
  esac
  if [[ $PREFIX == -* || -z ${{cmds[$pathway]}}${{vals[$key]}} ]]; then
    compadd -- ${{=opts[$pathway]}} ${{=opts[{name}]}}
  elif [[ ${{vals[$key]}} == FILES ]]; then
    _files
  else
    compadd -- ${{=cmds[$pathway]}}
  fi
}}
_{name} "$@"
"""


def main():
    shell, program = sys.argv[1:]
    name = pathlib.Path(program).name
    template, entry = {"bash": (BASH, '["{}"]="{}"'), "zsh": (ZSH, '"{}" "{}"')}[shell]
    print(template.format(name=name, tables=tables(describe(program), entry)), end="")


if __name__ == "__main__":
    main()
