#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages of the site as Markdown, in one folder: those of the repository, with links that hold there, and the reference.

    docs/site/assemble.py FOLDER            make them
    docs/site/assemble.py --check FOLDER    and check all links and anchors; the exit code is 1 when one leads nowhere

Of each code block below a `<!-- file -->` the text comes from the file, with a link to it. `tutti::name`, `world.name(...)` and
`class::name` in prose become links to the reference.
"""
import html
import os
import pathlib
import re
import shutil
import sys

from reference import ROOT, Reference, page_of_header, public_headers

# Documents outside of docs/, and where they are on the site. Those below docs/ keep their names.
PAGES = {
    "docs/quick-start.md": "index.md",
    "docs/README.md": "pages.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "front-page.md",
    "deploy/README.md": "deployment.md",
    "examples/README.md": "examples.md",
    "examples/data/README.md": "digits.md",
    "gpu/ARCHITECTURE.md": "gpu-architecture.md",
    "gpu/README.md": "gpu-reference.md",
    "perf/NOTES.md": "performance-notes.md",
    "perf/README.md": "measuring.md",
    "perf/results/prepared.md": "results/prepared.md",
    "perf/results/results.md": "results/results.md",
    "perf/results/torch.md": "results/torch.md",
    "python/README.md": "python.md",
}
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".cu": "cpp", ".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml",
             ".cmake": "cmake", ".json": "json", ".toml": "toml", ".sbatch": "bash"}
LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
MARKER = re.compile(r"<!-- (\S+) -->")
LARGEST_SOURCE = 200_000
SOURCE_HEAD = "---\ntemplate: source.html\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n\n"


def slug_of(heading):
    """The anchor that a code host gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = html.unescape(re.sub(r"\\([*_\[\]~#\\])", r"\1", text))
    return "".join(c.lower() if c.isalnum() or c in "-_" else "-" if c == " " else "" for c in text.strip("# "))


def fences(lines):
    """(line, whether it is code or a fence) of each line."""
    fence = None
    for line in lines:
        found = re.match(r"\s*(`{3,}|~{3,})", line)
        if fence is None and found:
            fence = found[1]
            yield line, True
        elif fence is not None:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
            yield line, True
        else:
            yield line, False


class Site:
    def __init__(self, folder, reference=None):
        self.folder = pathlib.Path(folder)
        self.reference = reference or Reference()
        self.pages = dict(PAGES)
        for path in sorted((ROOT / "docs").rglob("*.md")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("docs/site/"):
                self.pages.setdefault(name, name.removeprefix("docs/"))
        self.pages.update({header: page_of_header(header) for header in public_headers()})
        self.sources = {}   # other files that pages link to
        self.copies = {}    # images and other files, as they are
        self.written = {}
        unique = {}
        for name in {entry.name for entry in self.reference.entries}:
            unique.setdefault(name.split("::")[-1], []).append(name)
        self.unique = {short: min(names, key=len) for short, names in unique.items()
                       if len(names) == 1 or min(names, key=len) == short}

    # ---- links ----

    def target(self, document, link):
        """The site's path of what the document links to, and its anchor; None where there is no page for it."""
        file, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(document), file)) if file else document
        if file.startswith("/source/"):
            return file[1:] + ".md", ""
        if file.startswith("/"):
            path = file[1:]
        if path in self.pages:
            return self.pages[path], anchor
        full = ROOT / path
        if full.is_dir():
            readme = path + "/README.md"
            return (self.pages[readme], anchor) if readme in self.pages else None
        if not full.is_file():
            raise SystemExit(f"{document}: the link {link} leads nowhere")
        if full.suffix in (".svg", ".png") or full.stat().st_size > LARGEST_SOURCE:
            place = path.removeprefix("docs/").removeprefix("perf/")
            self.copies[path] = place
            return place, anchor
        self.sources[path] = f"source/{path}.md"
        return self.sources[path], ""

    def rewritten(self, document, page, line):
        """A line of prose with links that hold on the site."""
        def replace(match):
            image, text, link = match.groups()
            text = LINK.sub(replace, text)
            if "://" in link or link.startswith("mailto:"):
                return f"{image}[{text}]({link})"
            found = self.target(document, link)
            if found is None:
                return text
            place, anchor = found
            relative = os.path.relpath(place, os.path.dirname(page) or ".") if place != page else ""
            if image and place.startswith("images/"):   # both themes
                light, dark = relative, relative.replace(".svg", "-dark.svg")
                return f"![{text}]({light}#only-light)![{text}]({dark}#only-dark)"
            return f"{image}[{text}]({relative}{'#' + anchor if anchor else ''})"
        return LINK.sub(replace, line)

    def place_of_code(self, code):
        """The public name that `code` in prose names, and where the reference has it."""
        text = re.sub(r"<[^<>]*>", "", code).removeprefix("co_await ")
        text = re.split(r"[({ ]", text)[0].rstrip("…")
        called = "(" in code
        for name in (text.removeprefix("tutti::"), re.sub(r"^(world|group|c)\.", "communicator::", text).replace(".", "::"),
                     re.sub(r"^log\.", "track::log::", text), re.sub(r"^(parallel|ddp)\.", "data_parallel::", text),
                     re.sub(r"^stream\.", "gpu::stream::", text)):
            if name in self.reference.places and (text.startswith("tutti::") or "::" in name):
                return self.reference.places[name]
        if re.fullmatch(r"\w+", text) and text in self.unique and ("_" in text or called) and not re.fullmatch(r"[A-Z_]+", text):
            return self.reference.places[self.unique[text]]
        return None

    def with_reference(self, page, line):
        """A line of prose in which public names link to the reference."""
        def replace(match):
            before, code = match.groups()
            place = None if before else self.place_of_code(code)
            if place is None or place[0] == page:
                return match[0]
            return f"[`{code}`]({os.path.relpath(place[0], os.path.dirname(page) or '.')}#{place[1]})"
        # Not what is in a link already.
        parts = re.split(r"(!?\[(?:[^\[\]`]|`[^`]*`|!\[[^\]]*\]\([^)]*\))*\]\([^)]*\))", line)
        return "".join(part if i % 2 else re.sub(r"(\[)?`([^`]+)`", replace, part) for i, part in enumerate(parts))

    # ---- pages ----

    def included(self, document, source, code):
        """The lines of the file that `code` shows."""
        lines = (ROOT / source).read_text().split("\n")
        for first in range(len(lines) - len(code) + 1):
            margin = len(lines[first]) - len(lines[first].lstrip())
            if all((theirs == "" if not ours else theirs == " " * margin + ours)
                   for ours, theirs in zip(code, lines[first:first + len(code)])):
                return [line[margin:] for line in lines[first:first + len(code)]], first + 1
        raise SystemExit(f"{document}: the code below <!-- {source} --> is not in that file")

    def translate(self, document, page, text):
        lines, out, i = text.split("\n"), [], 0
        marked = list(fences(lines))
        while i < len(lines):
            line, code = marked[i]
            if code:
                end = i + 1
                opening = re.match(r"\s*(`{3,}|~{3,})", line)[1]
                while not (lines[end].strip().startswith(opening) and lines[end].strip() == opening[0] * len(lines[end].strip())):
                    end += 1
                above = MARKER.fullmatch(lines[i - 1]) if i else None
                body = lines[i + 1:end]
                if above and (ROOT / above[1]).is_file():
                    body, first = self.included(document, above[1], body)
                    place = os.path.relpath(self.target("", above[1])[0], os.path.dirname(page) or ".")
                    out.extend([line, *body, lines[end],
                                f'<p class="from" markdown>[{above[1]}]({place}), from line {first}</p>'])
                else:
                    out.extend([line, *body, lines[end]])
                i = end + 1
                continue
            line = self.rewritten(document, page, line)
            if not line.startswith("#"):
                line = self.with_reference(page, line)
            if line.startswith("|"):   # Python-Markdown keeps the backslash of `a\|b`
                line = re.sub(r"`([^`]*\\\|[^`]*)`", lambda code: "<code>" + html.escape(code[1]).replace("\\|", "&#124;") + "</code>", line)
            # A list that follows a paragraph at once is one for code hosts, and not for Python-Markdown.
            if re.match(r"([-*]|\d+\.) ", line) and out and out[-1].strip() and not re.match(r"\s|([-*]|\d+\.) ", out[-1]):
                out.append("")
            out.append(line)
            i += 1
        return "\n".join(out)

    def write(self, page, text):
        self.written[page] = text
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def make(self):
        if self.folder.exists():
            shutil.rmtree(self.folder)
        for document, page in self.pages.items():
            if document.endswith(".md") and (ROOT / document).is_file():
                self.write(page, self.translate(document, page, (ROOT / document).read_text()))
        for page, text in self.reference.pages().items():
            self.write(page, text if page == "reference/index.md" else self.translate(page, page, text))
        for path, page in sorted(self.sources.items()):
            text = (ROOT / path).read_text()
            language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
            self.write(page, f"{SOURCE_HEAD}# {path}\n\n`````{language}\n{text}`````\n")
        for header in public_headers():   # the reference has their names; this is all of the text
            text = (ROOT / header).read_text()
            self.write(f"source/{header}.md", f"{SOURCE_HEAD}# {header}\n\n`````cpp\n{text}`````\n")
        for path, place in sorted(self.copies.items()):
            self.copy(path, place)
        for file in ("style.css", "iframe-worker.js"):
            shutil.copy(ROOT / "docs/site" / file, self.folder)

    def copy(self, path, place):
        to = self.folder / place
        to.parent.mkdir(parents=True, exist_ok=True)
        if not place.startswith("images/"):
            shutil.copy(ROOT / path, to)
            return
        # A picture has the colours of both themes, and follows the system; the site has a switch.
        text = (ROOT / path).read_text()
        dark = re.search(r"@media \(prefers-color-scheme: dark\) \{(.*?)\n  \}", text, re.S)
        to.write_text(text.replace(dark[0], "") if dark else text)
        to.with_name(to.stem + "-dark.svg").write_text(text.replace(dark[0], dark[1]) if dark else text)

    # ---- checks ----

    def anchors(self, page):
        found, count = set(re.findall(r'<a id="([^"]+)">', self.written[page])), {}
        for line, code in fences(self.written[page].split("\n")):
            if code or not re.match(r"#+ ", line):
                continue
            own = re.search(r"\{#([^}]+)\}\s*$", line)
            slug = own[1] if own else slug_of(line)
            count[slug] = count.get(slug, 0) + 1
            found.add(slug if count[slug] == 1 else f"{slug}_{count[slug] - 1}")
        return found

    def broken_links(self):
        anchors = {page: self.anchors(page) for page in self.written}
        for page, text in self.written.items():
            for line, code in fences(text.split("\n")):
                for _, _, link in [] if code else LINK.findall(line):
                    file, _, anchor = link.partition("#")
                    if "://" in link or link.startswith("mailto:"):
                        continue
                    target = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
                    if not (self.folder / target).is_file():
                        yield f"{page}: {link}: no such file"
                    elif anchor and target in anchors and anchor not in anchors[target]:
                        yield f"{page}: {link}: no such anchor"


def main():
    check = "--check" in sys.argv
    site = Site(sys.argv[-1])
    site.make()
    broken = list(site.broken_links()) if check else []
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
