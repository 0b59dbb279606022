#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages that are made from the code: docs/configuration.md, and docs/commands.md where the programs are built.

    docs/site/generate.py [--check] [FOLDER...]     FOLDER: where the programs are; --check: says what differs, and changes nothing
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {"configuration": ROOT / "docs/configuration.md", "commands": ROOT / "docs/commands.md"}
BEGIN, END = "<!-- from the code, by docs/site/generate.py -->", "<!-- end -->"
COMMANDS = [["tutti-run"], ["tutti-report"], ["tutti-perf"], ["tutti-perf", "latency"], ["tutti-perf", "overlap"],
            ["tutti-perf", "startup"], ["tutti-perf", "tune"]]


def read_variables():
    """[(title of the group, [(names, values, text)])] of the table in src/base/env.cpp."""
    source = (ROOT / "src/base/env.cpp").read_text()
    titles = dict(re.findall(r'string_view (\w+) = "([^"]*)";', source))
    groups = {}
    for group, names, *row in re.findall(r'\{g::(\w+), "([^"]*)", "([^"]*)", "([^"]*)"\}', source):
        groups.setdefault(titles[group], []).append((names.split(", "), *row))
    return list(groups.items())


def tables_of_variables():
    cell = lambda text: text.replace("|", "\\|")
    out = []
    for title, rows in read_variables():
        out.extend([f"## {title}", "", "| variable | values | meaning |", "|---|---|---|"])
        out.extend(f"| {', '.join(f'`{name}`' for name in names)} | {f'`{cell(values)}`' if values else ''} | {cell(text)} |"
                   for names, values, text in rows)
        out.append("")
    return "\n".join(out)


def help_of(command, folders):
    program = next((f / command[0] for f in map(pathlib.Path, folders) if (f / command[0]).is_file()), None)
    if program is None:
        return None
    said = subprocess.run([program, *command[1:], "--help"], capture_output=True, text=True, check=True)
    return said.stdout.replace(str(program), command[0]).strip("\n")


def texts_of_commands(folders):
    """None where a program is missing."""
    out = []
    for command in COMMANDS:
        text = help_of(command, folders)
        if text is None:
            return None
        # Options of one command only have too little to say for a chapter.
        out.extend([f"## {' '.join(command)}", "", "```text", *[line.rstrip() for line in text.split("\n")], "```", ""])
    return "\n".join(out)


def comparable(page):
    """Without what CLI11's version decides: "N=2" or "N [2] " for a default value, headings, spaces and where lines break."""
    return "".join(re.sub(r" \[(\S*)\](?=\s)", r"=\1", page).split()).lower().replace("usage:", "")


def main():
    check, folders, differ = "--check" in sys.argv, [a for a in sys.argv[1:] if a != "--check"], []
    for name, text in (("configuration", tables_of_variables()), ("commands", texts_of_commands(folders))):
        if text is None:
            continue
        page = PAGES[name].read_text()
        before, _, rest = page.partition(BEGIN)
        wanted = f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}"
        if comparable(wanted) != comparable(page) if check else wanted != page:
            differ.append(PAGES[name].relative_to(ROOT).as_posix())
            if not check:
                PAGES[name].write_text(wanted)
    if differ:
        print(("not as the code has it: " if check else "written: ") + ", ".join(differ))
    return 1 if check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
