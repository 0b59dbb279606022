#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference, from the public headers: doxygen says which names there are and where, the headers say what about them.

A page for each header outside of detail/. What a name means is the comment above its declaration, or behind it.
"""
import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["include", "gpu/include"]
DOXYFILE = """
INPUT = {inputs}
RECURSIVE = YES
FILE_PATTERNS = *.hpp
INPUT_FILTER = "sed 's/::inline v[0-9]*//'"
EXTRACT_ALL = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
MARKDOWN_SUPPORT = NO
QUIET = YES
ENABLE_PREPROCESSING = NO
WARNINGS = NO
OUTPUT_DIRECTORY = {output}
STRIP_FROM_PATH = {root}
"""
HIDDEN = ("detail", "impl", "rows", "base", "comm", "promise_type")   # namespaces and types that are nobody's to name
# The caller leaves it out: it is the place of the call.
CALL_SITE = re.compile(r",?\s*(?:detail::origin_of<(?:[^<>]|<[^<>]*>)*> from|call_site where|const detail::maybe_on_stream& from) = call_site::current\(\)")


def public_headers():
    return sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.hpp")
                  if "detail" not in path.parts)


def name_of_header(header):
    return re.sub(r"^(gpu/)?include/", "", header)


def page_of_header(header):
    return "reference/" + name_of_header(header).removeprefix("tutti/").removesuffix(".hpp") + ".md"


def target_of(header):
    """The target that a program links for this header."""
    name = name_of_header(header)
    return "gpu" if header.startswith("gpu/") else next(
        (t for t in ("train", "track", "sim", "torch") if name.startswith((f"tutti/{t}.", f"tutti/{t}/"))), "tutti")


class Entry:
    """One declaration: `name` is qualified, below `tutti::`."""

    def __init__(self, kind, name, header, line):
        self.kind, self.name, self.header, self.line = kind, name, header, line

    @property
    def short(self):
        return self.name.split("::")[-1]


def is_hidden(name):
    # A specialisation has the name of its template.
    return any(part in HIDDEN for part in name.split("::")) or "<" in name.split("operator")[0]


def read_doxygen():
    """All public entries of the headers, in the order of each header, and {enumerator: its enumeration}."""
    with tempfile.TemporaryDirectory() as folder:
        doxyfile = DOXYFILE.format(inputs=" ".join(str(ROOT / f) for f in FOLDERS), output=folder, root=ROOT)
        subprocess.run(["doxygen", "-"], input=doxyfile, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        trees = [ElementTree.parse(path).getroot() for path in sorted(pathlib.Path(folder, "xml").glob("*.xml"))]
    headers, entries, values, seen = set(public_headers()), [], {}, set()

    def add(kind, name, location):
        if location is None or not name.startswith("tutti::"):
            return
        header = (ROOT / location.get("file")).relative_to(ROOT).as_posix()
        name, line = name.removeprefix("tutti::"), int(location.get("line"))
        if header in headers and not is_hidden(name) and (name, header, line) not in seen:
            seen.add((name, header, line))
            entries.append(Entry(kind, name, header, line))

    private = {compound.findtext("compoundname") + "::" for tree in trees for compound in tree.iter("compounddef")
               if compound.get("prot") == "private"}
    public = {compound.findtext("compoundname") for tree in trees for compound in tree.iter("compounddef")
              if compound.get("prot") != "private"}
    for tree in trees:
        for compound in tree.iter("compounddef"):
            kind, name = compound.get("kind"), re.sub(r"\s*<.*", "", compound.findtext("compoundname"))
            if kind not in ("class", "struct", "union", "namespace", "concept") or (name + "::").startswith(tuple(private)):
                continue
            outer = name.rpartition("::")[0]
            if kind != "namespace" and "<" not in compound.findtext("compoundname"):
                if outer.count("::") and outer in public or outer in ("tutti",) or not any(c == outer for c in public):
                    add(kind, name, compound.find("location"))
            for member in compound.iter("memberdef"):
                own = member.findtext("name")
                if member.get("prot") != "public" or member.get("kind") == "friend" and not own.startswith("operator"):
                    continue
                if own.startswith("~") or own.startswith("@") or "=delete" in (member.findtext("argsstring") or "").replace(" ", ""):
                    continue
                add(member.get("kind"), f"{name}::{own}", member.find("location"))
                if member.get("kind") == "enum" and not is_hidden(f"{name}::{own}"):
                    for value in member.iter("enumvalue"):
                        values[f"{name}::{own}::{value.findtext('name')}".removeprefix("tutti::")] = f"{name}::{own}".removeprefix("tutti::")
    order = {header: i for i, header in enumerate(public_headers())}
    return sorted(entries, key=lambda e: (order[e.header], e.line)), values


# ---- what a header says at a line ----

def is_comment(line):
    return line.strip().startswith("//")


def start_of(lines, at):
    """The first line of the declaration whose name is in line `at` (from 0)."""
    while at > 0:
        above = lines[at - 1].split("  //")[0].strip()
        if not above or is_comment(lines[at - 1]) or above.endswith((";", "{", "}", ":")) or above.startswith("#"):
            break
        at -= 1
    return at


def comment_above(lines, at):
    first = at
    while first > 0 and is_comment(lines[first - 1]) and "clang-format" not in lines[first - 1]:
        first -= 1
    return [re.sub(r"^\s*// ?", "", line) for line in lines[first:at]]


def declaration_from(lines, at):
    """Its text without the body, and its last line."""
    depth, text = 0, ""
    for number in range(at, min(at + 40, len(lines))):
        code = re.sub(r"(^|\s+)//.*", "", lines[number])
        for i, c in enumerate(code):
            depth += c in "(["
            depth -= c in ")]"
            if depth == 0 and c in ";{" and not code[:i].rstrip().endswith("="):
                return text + code[:i].rstrip() + ";", number
            if depth == 0 and c == ":" and not code[:i].strip() and code[i + 1:i + 2] == " ":   # what a constructor sets
                return text.rstrip() + ";", number
            if depth == 0 and c == ":" and text + code[:i] and code[:i].rstrip().endswith((")", "noexcept")) and code[i + 1:i + 2] == " ":
                return text + code[:i].rstrip() + ";", number
        text += code + "\n"
    return text.rstrip() + ";", at


def trailing_comment(lines, at):
    found = re.search(r"\S.*?\s//\s(.*)", lines[at])
    return [sentence(found[1])] if found and "NOLINT" not in found[1] else []


def sentence(text):
    """What a comment behind a declaration says, as a sentence."""
    text = text[0].upper() + text[1:] if re.match(r"[a-z]+(?:[ ;,.]|:(?!:)|$)", text) else text
    return text if text.endswith((".", ":", "?")) else text + "."


def dedent(text):
    rows = [row for row in text.split("\n") if row.strip()]
    margin = min((len(row) - len(row.lstrip()) for row in rows), default=0)
    return "\n".join(row[margin:] for row in rows)


# ---- comments as Markdown ----

LABELS = ("Completes", "Returns", "Buffers", "Errors", "Cancellation", "Cost", "Order", "Overlap", "Throws", "Memory", "Order", "Copies",
          "Ownership", "Threads")


NAME = re.compile(r"(?<![\w./`])([a-z]\w*\.[a-z]\w*\([^()]*\)|(?:[A-Za-z]\w*::)+\w+(?:\(\))?|[A-Za-z]\w*_\w+(?:\(\))?|[a-z]\w+\(\))(?![\w`])")


def escaped(text, names=True):
    """Plain text of a comment as Markdown: what is between `backticks` or looks like a name is code, nothing else is markup."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts = [text]
    plain = lambda s: re.sub(r"([*_\[\]~#\\])", r"\\\1", s).replace("<", "&lt;")
    marked = lambda s: "".join(f"`{part}`" if i % 2 else plain(part) for i, part in enumerate(NAME.split(s)))
    return "`".join(part if i % 2 else marked(part) if names else plain(part) for i, part in enumerate(parts))


def markdown_of(comment, labels=True):
    """Paragraphs, lists and indented code of a comment."""
    out, code = [], []
    whole = []   # with `code` that goes over the end of a line in one line
    for line in comment:
        if whole and whole[-1].count("`") % 2 and not whole[-1].startswith("  "):
            whole[-1] += " " + line.strip()
        else:
            whole.append(line)
    comment = whole

    def end_code():
        if code:
            while code and not code[-1].strip():
                code.pop()
            margin = min(len(row) - len(row.lstrip()) for row in code if row.strip())
            out.extend(["", "```cpp", *[row[margin:] for row in code], "```", ""])
            code.clear()

    previous_list = False
    for line in comment:
        indented = line.startswith("  ") and line.strip()
        if indented and previous_list and not code:
            out.append("  " + escaped(line.strip()))
            continue
        if indented or code and not line.strip():
            code.append(line)
            continue
        end_code()
        label = labels and re.match(r"(%s): " % "|".join(LABELS), line)
        if label:
            out.extend(["", f"**{label[1]}:** {escaped(line[label.end():])}"])
        elif re.match(r"[-*] ", line):
            out.extend([""] if out and out[-1] and not previous_list else [])
            out.append("- " + escaped(line[2:]))
            previous_list = True
            continue
        else:
            out.append(escaped(line))
        previous_list = previous_list and bool(line.strip())
    end_code()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


# ---- examples ----

def read_examples():
    paths = [path for path in sorted((ROOT / "examples").rglob("*.cpp")) if "data" not in path.parts]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def examples_of(name, examples, at_most=2):
    """The shortest programs that use the name."""
    parts, short = name.split("::"), name.split("::")[-1]
    if not re.fullmatch(r"\w+", short):
        return []
    outer = parts[-2] if len(parts) > 1 else ""
    if outer and outer not in ("gpu", "cuda", "nccl", "oneccl", "level_zero", "emulated", "track", "sim", "torch"):
        if short == outer:
            return []
        pattern = re.compile(r"(?:\.|->|%s::)%s\b" % (outer, short))
    else:
        pattern = re.compile(r"tutti::%s\b" % "::".join(parts))
    using = [path for path, text in examples.items() if pattern.search(text)]
    return sorted(using, key=lambda path: len(examples[path]))[:at_most]


# ---- pages ----

def anchor_of(name):
    return re.sub(r"[^\w.]+", "-", name.replace("::", ".")).strip("-").lower()


class Reference:
    def __init__(self):
        self.entries, values = read_doxygen()
        self.examples = read_examples()
        self.text = {header: (ROOT / header).read_text().split("\n") for header in public_headers()}
        # What prose may link to: the qualified name, and where it is.
        self.places = {}
        for entry in self.entries:
            self.places.setdefault(entry.name, (page_of_header(entry.header), anchor_of(entry.name)))
        for value, enumeration in values.items():
            if enumeration in self.places:
                self.places[value] = self.places[enumeration]

    def pages(self):
        """{path below the site: Markdown}"""
        found = {page_of_header(header): self.page(header) for header in public_headers()}
        found["reference/index.md"] = self.index()
        return found

    def about(self, header):
        lines = self.text[header]
        end = next(i for i, line in enumerate(lines) if line.startswith("#"))
        return markdown_of([re.sub(r"^// ?", "", line) for line in lines[1:end] if is_comment(line)], labels=False)

    def sections(self, header):
        """(line, title, text) of each `// ---- title ----`."""
        lines, found = self.text[header], []
        for i, line in enumerate(lines):
            match = re.match(r"\s*// ---- (.+?) ----", line)
            if match:
                end = i + 1
                while end < len(lines) and is_comment(lines[end]):
                    end += 1
                # A comment that ends at a declaration is that declaration's.
                own = lines[i + 1:end] if end < len(lines) and not lines[end].strip() else []
                found.append((i, match[1], markdown_of([re.sub(r"^\s*// ?", "", x) for x in own])))
        return found

    def page(self, header):
        name = name_of_header(header)
        entries = [entry for entry in self.entries if entry.header == header]
        target = target_of(header)
        library = "tutti" if target == "tutti" else f"tutti_{target}"
        out = [f"# {name}", "", self.about(header), "", f"```cpp\n#include <{name}>\n```", "",
               f"Link with `tutti::{target}` (CMake) or `{library}` (pkg-config). [Source](/source/{header})", ""]
        sections, lines = self.sections(header), self.text[header]
        groups, used = [], -1
        for entry in entries:
            at = start_of(lines, entry.line - 1)
            comment = [] if re.match(r"\s*// ----", lines[at - 1]) else comment_above(lines, at)
            cut = max((i for i, line in enumerate(comment) if line.startswith("---- ")), default=-1)
            comment = comment[cut + 1:] or trailing_comment(lines, entry.line - 1)
            declaration, last = declaration_from(lines, at)
            joined = groups and not comment and used >= 0 and not any(not l.strip() for l in lines[used + 1:at]) \
                and entry.kind not in ("class", "struct", "concept", "enum") and groups[-1]["kind"] not in ("class", "struct", "enum") \
                and groups[-1]["outer"] == entry.name.rpartition("::")[0]
            declaration = CALL_SITE.sub("", dedent(declaration))
            if entry.kind == "variable":   # a comment above is that of all members that follow, if they are of one type
                declaration = re.sub(r"\s+", " ", declaration)
                joined = joined and (not groups[-1]["comment"] or declaration.split()[0] == groups[-1]["declarations"][-1].split()[0])
            if joined:
                groups[-1]["names"].append(entry.name)
                groups[-1]["declarations"].append(declaration)
            else:
                groups.append({"names": [entry.name], "declarations": [declaration], "comment": comment, "kind": entry.kind,
                               "outer": entry.name.rpartition("::")[0], "line": at, "entry": entry})
            used = self.end_of_body(lines, last)
        previous, heading = 0, None
        for group in groups:
            for line, title, text in sections:
                if previous <= line < group["line"]:
                    out.extend(["", f"### {title[0].upper()}{title[1:]}", "", text])
            previous = group["line"]
            # Overloads that stand one after the other share a heading.
            names = (group["outer"], *dict.fromkeys(group["names"]))
            out.extend(self.group(group, lines, names != heading))
            heading = names
        return "\n".join(out) + "\n"

    @staticmethod
    def end_of_body(lines, at):
        """The last line of a function whose head ends in line `at`; a class ends where it begins."""
        depth = lines[at].count("{") - lines[at].count("}")
        if depth <= 0 or re.match(r"\s*(class|struct|enum|template.*(class|struct)) ", lines[at]):
            return at
        while depth > 0 and at + 1 < len(lines):
            at += 1
            depth += lines[at].count("{") - lines[at].count("}")
        return at

    def group(self, group, lines, with_heading):
        names = list(dict.fromkeys(group["names"]))
        kind, first = group["kind"], names[0]
        shown = {"class": "class ", "struct": "struct ", "enum": "enum ", "concept": "concept "}.get(kind, "")
        title = ", ".join(name.split("::")[-1] for name in names)
        level = "##" if kind in ("class", "struct", "concept", "enum") or not group["outer"] else "###"
        if group["outer"] and level == "##" and "::" in group["outer"]:
            level = "###"
        if level == "##" and group["outer"]:
            shown += group["outer"] + "::"
        out = ["", f"{level} {escaped(shown + title, names=False)} {{#{anchor_of(first)}}}", ""]
        out.extend(f'<a id="{anchor_of(name)}"></a>' for name in names[1:])
        if not with_heading:
            out = [""]
        code = group["declarations"]
        if kind in ("class", "struct"):
            short = re.escape(first.split("::")[-1])
            code = [re.sub(r"\b(class|struct)\s+(?:\[\[.*?\]\]\s*)?(%s)\b[^;]*;" % short, r"\1 \2;", d, flags=re.S) for d in code]
        if kind == "enum":
            out.extend(self.enumerators(group, lines))
        else:
            out.extend(["", "```cpp", *code, "```"])
        if group["comment"] and kind != "enum":
            out.extend(["", markdown_of(group["comment"])])
        used = [] if kind == "variable" and group["outer"] else list(dict.fromkeys(path for name in names for path in examples_of(name, self.examples)))[:2]
        if used and with_heading:
            out.extend(["", "Used in " + " and ".join(f"[{path}](/{path})" for path in used) + "."])
        return out

    def enumerators(self, group, lines):
        """A table of the values that have a comment, or the declaration where none has."""
        end = group["line"]
        while "};" not in lines[end]:
            end += 1
        rows, above = [], []
        for line in lines[group["line"] + 1:end]:
            code, _, behind = line.partition("//")
            if not code.strip():
                above.append(behind.strip())
                continue
            names = [name.split("=")[0].split("[[")[0].strip() for name in re.sub(r"\[\[.*?\]\]", "", code).split(",")]
            text = " ".join(above + [behind.strip()]).strip()
            rows.extend((name, text) for name in names if name)
            above = []
        out = ["", markdown_of(group["comment"]), ""]
        if not any(text for _, text in rows):
            body = "\n".join(line.rstrip() for line in lines[group["line"]:end + 1])
            return [*out, "```cpp", dedent(body), "```"]
        out.extend(["| value | |", "|---|---|"])
        out.extend(f"| `{name}` | {escaped(sentence(text)).replace('|', chr(92) + '|') if text else ''} |" for name, text in rows)
        return out

    def index(self):
        out = ["# Reference", "",
               "One page for each public header, made from the header. A program includes the header of a target:",
               "`tutti/tutti.hpp`, `tutti/train.hpp`, `tutti/track.hpp`, `tutti/sim.hpp`, `tutti/gpu.hpp` or `tutti/torch.hpp`.", "",
               ]
        groups = {"tutti": "Runtime"} | {"train": "Training", "track": "Tracking", "sim": "Simulator", "gpu": "Devices", "torch": "PyTorch in C++"}
        for target, title in groups.items():
            out.extend(["", f"## {title}", "", "| header | what |", "|---|---|"])
            for header in public_headers():
                if target_of(header) == target:
                    what = self.about(header).split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
                    what = re.split(r"(?<=[.;]) ", what)[0]
                    out.append(f"| [{name_of_header(header)}]({page_of_header(header).removeprefix('reference/')}) | {what} |")
        out.extend(["", "## Names", ""])
        letters = {}
        for name in self.places:
            letters.setdefault(name.split("::")[-1].lstrip("_")[0].lower(), []).append(name)
        for letter in sorted(letters):
            if not letter.isalpha():
                continue
            links = []
            for name in sorted(letters[letter], key=lambda n: (n.split("::")[-1].lower(), n)):
                page, anchor = self.places[name]
                links.append(f"[`{name}`]({page.removeprefix('reference/')}#{anchor})")
            out.extend(["", f"### {letter.upper()}", "", " · ".join(links)])
        return "\n".join(out) + "\n"


if __name__ == "__main__":
    reference = Reference()
    for name, place in reference.places.items():
        print(name, *place)
