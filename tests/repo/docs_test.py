#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules for the documentation that need more than one file at a time, or run something.

    docs_test.py [--run] [FOLDER...]    --run: runs the command lines; the folders are those of tutti-run, tutti-perf and the examples
"""
import ast
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/site"))
import assemble
import generate
import reference

CODE = ("src", "gpu/src", "include", "gpu/include")


def files(*patterns):
    found = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
                           capture_output=True, text=True)
    if found.returncode == 0:
        return [ROOT / name for name in found.stdout.splitlines() if (ROOT / name).is_file()]
    return [path for pattern in patterns for path in ROOT.rglob(pattern) if "build" not in path.parts]


def documents():
    return [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md"))), ROOT / "deploy/README.md",
            ROOT / "gpu/README.md", ROOT / "perf/README.md"]


the_reference = functools.cache(reference.Reference)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


# ---- the pages made from the code ----

def pages_are_as_the_code_has_them(folders):
    """docs/configuration.md and docs/commands.md (mend: docs/site/generate.py build/dev/bin)"""
    done = subprocess.run([sys.executable, ROOT / "docs/site/generate.py", "--check", *folders], capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines() if done.returncode else []


def man_pages_and_completion_know_every_option(folders):
    """what cmake/man_page.awk and cmake/shell/bash_completion make of --help"""
    wrong = []
    for program in ("tutti-run", "tutti-report", "tutti-perf"):
        path = next((pathlib.Path(folder, program) for folder in folders if pathlib.Path(folder, program).is_file()), None)
        if path is None:
            return None
        text = subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout
        options = re.findall(r"(?<=[ ,])--[a-z][a-z-]*", "\n".join(line for line in text.split("\n") if re.match(" {2,10}-", line)))
        page = subprocess.run(["awk", "-v", f"name={program}", "-v", "version=1", "-f", ROOT / "cmake/man_page.awk"], input=text,
                              capture_output=True, text=True, check=True).stdout.replace("\\-", "-")
        script = (f"source '{ROOT}/cmake/shell/bash_completion'; COMP_WORDS=({program} --); COMP_CWORD=1; _tutti {program}; "
                  'echo "${COMPREPLY[@]}"')
        completed = subprocess.run(["bash", "-c", script], env=dict(os.environ, PATH=f"{path.parent}:{os.environ['PATH']}"),
                                   capture_output=True, text=True).stdout.split()
        wrong += [f"{program} {option}: not in its man page" for option in options if not re.search(r"^\.B .*" + option, page, re.M)]
        wrong += [f"{program} {option}: bash does not complete it" for option in options if option not in completed]
        if program == "tutti-run" and len(options) < 15:
            wrong.append("tutti-run --help lists few options")
        wrong += [f"{program}: its man page has no {part}" for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS") if f".SH {part}" not in page]
    return wrong


def pictures_are_as_drawn(folders):
    """docs/images (mend: docs/site/pictures.py)"""
    done = subprocess.run([sys.executable, ROOT / "docs/site/pictures.py", "--check"], capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines() if done.returncode else []


def variables_of_the_code_are_in_the_table(folders):
    """the table of src/base/env.cpp, and no other variable; CMake's options are in docs/configuration.md, and no others"""
    table = {name for _, rows in generate.read_variables() for names, _, _ in rows for name in names}
    literal = re.compile(r'"(TUTTI_[A-Z0-9_]+|(?:OMPI|PMIX?|HYDI|SLURM|PET|LWS|JOB|MPI|XDG|TORCHELASTIC|ROLE|GROUP|NODE|MASTER|LOCAL|WORLD|CCL'
                         r'|CUDA|NCCL|ZE_ENABLE)_[A-Za-z0-9_]+|RANK|NNODES|COLUMNS)"')
    called = re.compile(r'(?:getenv|setenv|env_string|env_integer)\(\s*"([A-Za-z_][A-Za-z0-9_]*)"')
    in_code = set()
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.[ch]pp"):
            if path.name != "env.cpp":
                text = path.read_text()
                in_code.update(literal.findall(text), called.findall(text))
    in_code -= {"PATH"}
    wrong = [f"{name} is not in src/base/env.cpp" for name in sorted(in_code - table)]
    wrong += [f"{name} of src/base/env.cpp is nowhere in the code" for name in sorted(table - in_code)]
    page = (ROOT / "docs/configuration.md").read_text().partition("## Build options")[2]
    shown, cmake = set(re.findall(r"^\| `(TUTTI_\w+)`", page, re.M)), set()
    for file in ("CMakeLists.txt", "gpu/CMakeLists.txt"):
        cmake.update(re.findall(r"^\s*(?:option\(|set\()(TUTTI_\w+) (?:\"|\w+ CACHE|\"\" CACHE|.* CACHE STRING)", (ROOT / file).read_text(), re.M))
    wrong += [f"{name}: an option of CMake that docs/configuration.md lacks" for name in sorted(cmake - shown)]
    wrong += [f"{name}: docs/configuration.md has it, and CMake has not" for name in sorted(shown - cmake)]
    return wrong


# ---- links, and the reference ----

class Declarations:
    """The public names of a header as a second reader finds them: by brackets and words, where doxygen parses."""
    SKIPPED = {"if", "for", "while", "switch", "return", "sizeof", "static_assert", "requires", "noexcept", "decltype", "operator",
               "alignas", "explicit", "throw", "catch", "defined", "constexpr", "else", "co_return", "co_await", "__extension__"}

    def __init__(self, text):
        self.names = []
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
        text = re.sub(r"^\s*#.*(?:\\\n.*)*", "", text, flags=re.M)
        self.scan(text, 0, [], "public")

    def scan(self, text, i, scope, access):
        """Reads declarations up to the bracket that ends this scope; returns where that is."""
        start = i
        while i < len(text):
            c = text[i]
            if c == "}":
                return i + 1
            if label := re.compile(r"\s*(public|private|protected)\s*:(?!:)").match(text, start):
                if i >= label.end() - 1:
                    access, start = label[1], label.end()
                    i = start
                    continue
            if c == "(" or c == "[":
                i = self.past(text, i)
                continue
            if c == ";":
                self.declared(text[start:i], scope, access)
                i = start = i + 1
                continue
            if c == "{":
                head = text[start:i]
                i = self.block(text, i, head, scope, access)
                rest = re.compile(r"\s*;").match(text, i)
                start = i = rest.end() if rest else i
                continue
            i += 1
        return i

    @staticmethod
    def past(text, i):
        """Behind the bracket that closes the one at i."""
        depth = 0
        while i < len(text):
            depth += text[i] in "([{"
            depth -= text[i] in ")]}"
            i += 1
            if depth == 0:
                return i
        return i

    def block(self, text, i, head, scope, access):
        plain = self.without_templates(head)
        if found := re.search(r"\bnamespace\s*([\w:]*)\s*$", plain):
            return self.scan(text, i + 1, scope + [n for n in found[1].split("::") if n], "public")
        if found := re.search(r"\b(class|struct|union|enum(?:\s+class)?)\s+(?:\[\[.*?\]\]\s*)?([\w:]+)\s*(?:final\s*)?(?::[^:].*)?$", plain, re.S):
            if "::" not in found[2]:
                if access == "public":
                    self.names.append("::".join(scope + [found[2]]))
                if access == "public" and not found[1].startswith("enum") and "<" not in self.tail(head, found[2]):
                    return self.scan(text, i + 1, scope + [found[2]], "private" if found[1] == "class" else "public")
            return self.past(text, i)
        self.declared(head, scope, access)
        return self.past(text, i)

    @staticmethod
    def tail(head, name):
        """What follows the name of a class: `<` of a specialisation."""
        return head[head.rindex(name) + len(name):].strip()[:1]

    @staticmethod
    def without_templates(head):
        head = re.sub(r"\[\[.*?\]\]", "", head, flags=re.S)
        while (found := re.search(r"\btemplate\s*<", head)):
            depth, i = 0, found.end() - 1
            while i < len(head):
                depth += head[i] == "<"
                depth -= head[i] == ">"
                i += 1
                if depth == 0:
                    break
            head = head[:found.start()] + head[i:]
        return head

    def declared(self, head, scope, access):
        head = self.without_templates(head).strip()
        while (found := re.match(r"requires\s*\(", head)):
            head = head[self.past(head, found.end() - 1):].strip().removeprefix("&&").strip()
        shorter = None
        while shorter != head:   # the arguments of templates
            shorter, head = head, re.sub(r"(?<=\w)<[^<>]*>", "", head)
        if access != "public" or not head or head.startswith(("friend", "extern", "}")) or "= delete" in head:
            return
        name = None
        if found := re.match(r"using\s+(\w+)\s*(?:\[\[.*?\]\])?\s*=", head):
            name = found[1]
        elif head.startswith(("using", "class ", "struct ", "enum ", "typedef", "static_assert")):
            return
        elif found := re.match(r"concept\s+(\w+)", head):
            name = found[1]
        elif "(" in head and not re.match(r"[^(]*=", head.replace("==", "").replace("operator=", "")):
            found = re.search(r"(~?\w+)\s*\($", head[:self.first_call(head) + 1])
            name = found[1] if found and head[found.start() - 2:found.start()] != "::" else None
        elif found := re.match(r"(?:inline |static |constexpr |const |mutable )*[\w:<>,\s*&]*?[\s*&>](\w+)\s*(?:=.*|\{.*)?$", head, re.S):
            name = found[1]
        if name and not name[0].isdigit() and name not in self.SKIPPED and not name.startswith("~") and "operator" not in head.partition("(")[0]:
            self.names.append("::".join(scope + [name]))

    @staticmethod
    def first_call(head):
        """The `(` of the parameters: not that of requires or noexcept."""
        for found in re.finditer(r"(\w+)\s*\(", head):
            if found[1] not in ("requires", "noexcept", "decltype", "explicit", "sizeof"):
                return found.end() - 1
        return head.index("(")


def public_names_are_in_the_reference(folders):
    """every public name of include/ and gpu/include/, as a second reader of the headers finds them"""
    known, wrong = set(the_reference().places), []
    for header in reference.public_headers():
        for name in dict.fromkeys(Declarations((ROOT / header).read_text()).names):
            if not name.startswith("tutti::"):
                continue
            name = name.removeprefix("tutti::")
            if name not in known and not reference.is_hidden(name):
                wrong.append(f"{header}: {name}")
    if len(known) < 500:
        wrong.append(f"only {len(known)} names: the reference is not complete")
    return wrong


def links_lead_somewhere(folders):
    """links and anchors of the site's pages, the reference among them"""
    with tempfile.TemporaryDirectory() as folder:
        site = assemble.Site(pathlib.Path(folder, "pages"), the_reference())
        site.make()
        return list(site.broken_links())


def prose_names_what_exists(folders):
    """`tutti::name` in the documents"""
    places, wrong = the_reference().places, []
    targets = {"tutti", "train", "track", "sim", "gpu", "torch"}   # CMake's
    for path in documents():
        lines = path.read_text().split("\n")
        for number, (line, code) in enumerate(assemble.fences(lines), 1):
            for name in [] if code else re.findall(r"`tutti::([\w:]+)", line):
                if name not in places and name.removesuffix("::") not in targets and not any(p.startswith(name + "::") for p in places):
                    wrong.append(f"{name_of(path)}:{number}: tutti::{name}")
    return wrong


def pages_are_in_the_navigation(folders):
    """docs/site/mkdocs.yml names every page, and no others"""
    nav = (ROOT / "docs/site/mkdocs.yml").read_text().partition("\nnav:")[2]
    named = set(re.findall(r"([\w/-]+\.md)", nav))
    site = dict(assemble.PAGES)
    pages = {site.get(name_of(p), name_of(p).removeprefix("docs/")) for p in (ROOT / "docs").rglob("*.md")}
    return [f"{page} is not in the navigation" for page in sorted(pages - named)]


def python_blocks_parse(folders):
    """`python` blocks of the documents"""
    wrong = []
    for path in documents():
        text = path.read_text()
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
            try:
                compile(block[1], "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            except SyntaxError as error:
                wrong.append(f"{name_of(path)}:{text.count(chr(10), 0, block.start()) + 1}: {error}")
    return wrong


# ---- command lines ----

def command_lines_in(text):
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for line in re.sub(r" *\\\n\s*", " ", block).split("\n"):
            line = re.sub(r"\s+# .*", "", line).strip()
            if line:
                yield line


def read_command_lines():
    """[(what runs them, [command])]"""
    groups = []
    for line in (ROOT / "tests/repo/command_lines.txt").read_text().split("\n"):
        if line.startswith("["):
            groups.append((line.strip("[]"), []))
        elif line and not line.startswith("#"):
            groups[-1][1].append(line)
    return groups


def command_lines_are_known(folders):
    """every line of an `sh` block is in tests/repo/command_lines.txt, and the other way round"""
    listed, wrong = {}, []
    for verdict, commands in read_command_lines():
        listed.update(dict.fromkeys(commands, verdict))
        for file in re.findall(r"run by (\S+?),? ", verdict + " "):
            if not (ROOT / file.rstrip(",")).is_file():
                wrong.append(f"tests/repo/command_lines.txt: there is no {file}")
    shown = {}
    for path in documents():
        for line in command_lines_in(path.read_text()):
            shown.setdefault(line, name_of(path))
    wrong += [f"{shown[line]}: {line}: tests/repo/command_lines.txt does not say what runs it" for line in shown if line not in listed]
    wrong += [f"tests/repo/command_lines.txt: {line}: no document has it" for line in listed if line not in shown]
    run = (ROOT / "run").read_text()
    wrong += [f"{line}: ./run has no such command" for line in shown for name in re.findall(r"\./run ([a-z-]+)", line)
              if not re.search(r"^  %s\) " % re.escape(name), run, re.M)]
    return wrong


def command_lines_run(folders):
    """the groups of tests/repo/command_lines.txt that say so"""
    programs = [folder for folder in folders if (pathlib.Path(folder) / "tutti-run").is_file() or (pathlib.Path(folder) / "hello").is_file()]
    if len(programs) < 2:
        return None
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        hello = next(pathlib.Path(f) / "hello" for f in programs if (pathlib.Path(f) / "hello").is_file())
        for name in ("program", "hello"):
            os.symlink(hello, pathlib.Path(folder, name))
        environment = dict(os.environ, PATH=os.pathsep.join([*programs, os.environ["PATH"]]), TUTTI_STALL_WARNING_MS="0")
        for verdict, commands in read_command_lines():
            if not verdict.startswith("run here"):
                continue
            expected = 137 if "137" in verdict else 0
            more = re.search(r"with (--\S+ \S+)", verdict)
            for command in sorted(commands, key=lambda c: "here.tuning ./" in c or c.startswith("TUTTI_TUNING")):
                if "TUTTI_TUNING" in command:   # what `tutti-perf tune` writes
                    pathlib.Path(folder, "here.tuning").write_text("all_reduce ranks>=2 bytes<=any ring\n")
                line = command + (" " + more[1] if more else "") + (" --seconds 0.001 --sizes 64" if "tune" in command.split() else "")
                try:
                    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
                    if done.returncode != expected:
                        wrong.append(f"{line}: exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
                except subprocess.TimeoutExpired:
                    wrong.append(f"{line}: not done within 100 s")
    return wrong


def main():
    folders = [str(pathlib.Path(folder).resolve()) for folder in sys.argv[1:] if folder != "--run"]
    rules = [pages_are_as_the_code_has_them, man_pages_and_completion_know_every_option, pictures_are_as_drawn, variables_of_the_code_are_in_the_table, pages_are_in_the_navigation,
             python_blocks_parse, command_lines_are_known]
    of_headers = [public_names_are_in_the_reference, links_lead_somewhere, prose_names_what_exists]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for rule in [command_lines_run] if "--run" in sys.argv else rules + of_headers:
        if rule in of_headers and not shutil.which("doxygen"):
            print(f"SKIPPED: {rule.__name__}: there is no doxygen")
            counts["skipped"] += 1
            continue
        wrong = rule(folders)
        if wrong is None:
            print(f"SKIPPED: {rule.__name__}: no folders of programs")
        counts["skipped" if wrong is None else "failed" if wrong else "passed"] += 1
        if wrong:
            print(f"{rule.__name__}: {rule.__doc__}")
            print("\n".join(f"  {line}" for line in wrong))
    print("cases: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
