#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the site as a browser would: nothing comes from a network, and every link and anchor leads somewhere.

    docs/site/check.py build/docs
"""
import html.parser
import os
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        self.anchors.update(v for k, v in attributes if k in ("id", "name") and v)
        if tag == "a" and has.get("href"):
            self.links.append(has["href"])
        elif tag in ("img", "script", "iframe", "source") and has.get("src"):
            self.loads.append(has["src"])
        elif tag == "link" and has.get("href") and has.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(has["href"])


def main():
    site = pathlib.Path(sys.argv[1])
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    bad = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in page.links + page.loads:
            url = urllib.parse.urlparse(link)
            if url.scheme in ("http", "https", "mailto") or link.startswith("//"):
                if link in page.loads:
                    bad.append(f"{name}: loads {link}")
                continue
            if url.scheme in ("data", "javascript"):
                continue
            target = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(url.path))) if url.path else path
            if target.is_dir():
                target /= "index.html"
            if name.name == "404.html":   # has no place of its own
                continue
            if not target.is_file():
                bad.append(f"{name}: {link}: no such file")
            elif url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].anchors:
                if url.fragment != "__skip":
                    bad.append(f"{name}: {link}: no such anchor")
    for path in [*site.rglob("*.css"), *site.rglob("*.js")]:
        text = path.read_text()
        for host in ("fonts.googleapis.com", "fonts.gstatic.com", "unpkg.com", "cdn.jsdelivr.net"):
            if f"//{host}" in text and path.suffix == ".css":
                bad.append(f"{path.relative_to(site)}: loads from {host}")
    print("\n".join(sorted(set(bad))) or f"check: {len(pages)} pages, every link and anchor leads somewhere, nothing comes from a network")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
