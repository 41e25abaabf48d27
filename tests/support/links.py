#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Checks every link of README.md, CHANGELOG.md, CONTRIBUTING.md and docs/*.md: that the file is there, and the heading in
it. Headings have the names that code hosts give them.

    links.py                 the documents as they are
    links.py --copy FOLDER   copies them, and all files of ours they link to, so that every link holds there
    links.py --site FOLDER   the pages that mkdocs made of them: each address in them leads to a file and a place in it
"""
import argparse
import glob
import html.parser
import os
import re
import shutil
import sys
import urllib.parse

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LINK = re.compile(r"\]\(([^()\s]+)\)")


def documents():
    return ["README.md", "CHANGELOG.md", "CONTRIBUTING.md",
            *sorted(os.path.relpath(name, ROOT) for name in glob.glob(os.path.join(ROOT, "docs", "*.md")))]


def text_of(name):
    """Without blocks of code, in which brackets are no links."""
    with open(os.path.join(ROOT, name)) as file:
        return re.sub(r"^```.*?^```$|`[^`\n]*`(?!\])", "", file.read(), flags=re.MULTILINE | re.DOTALL)


def anchors(name):
    with open(os.path.join(ROOT, name)) as file:
        text = re.sub(r"^```.*?^```$", "", file.read(), flags=re.MULTILINE | re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-"))
    return found


def linked(name):
    """(target, file, heading) of each link that stays in the project."""
    for target in LINK.findall(text_of(name)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        yield target, os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name, heading


def check_documents():
    wrong = 0
    for name in documents():
        for target, path, heading in linked(name):
            if not os.path.isfile(os.path.join(ROOT, path)):
                print(f"{name}: {target}: there is no file {path}")
                wrong += 1
            elif heading and heading not in anchors(path):
                print(f"{name}: {target}: {path} has no heading of this name")
                wrong += 1
    return wrong


def copy(folder):
    names = set(documents())
    for name in documents():
        names |= {path for _, path, _ in linked(name)}
    for name in names:
        to = os.path.join(folder, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(os.path.join(ROOT, name), to)


class page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.addresses, self.places = [], set()
        with open(path) as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            elif name in ("href", "src") and value:
                self.addresses.append(value)


def check_site(folder):
    pages = {path: page(path) for path in glob.glob(os.path.join(folder, "**", "*.html"), recursive=True)}
    wrong = 0
    if not pages:
        print(f"{folder}: no pages")
        return 1
    for path, one in sorted(pages.items()):
        # Of its own, which is shown where a page is missing, the addresses hold at the root of a server only.
        if os.path.basename(path) == "404.html":
            continue
        for address in one.addresses:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            to = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path))) if parts.path else path
            if os.path.isdir(to):
                to = os.path.join(to, "index.html")
            place = urllib.parse.unquote(parts.fragment)
            if not os.path.isfile(to):
                problem = "there is no such file"
            elif place and to in pages and place not in pages[to].places and not place.startswith("__"):
                problem = "there is no such place in that page"
            else:
                continue
            print(f"{os.path.relpath(path, folder)}: {address}: {problem}")
            wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copy", metavar="FOLDER")
    parser.add_argument("--site", metavar="FOLDER")
    options = parser.parse_args()
    if options.site:
        return check_site(options.site) > 0
    wrong = check_documents()
    if options.copy and not wrong:
        copy(options.copy)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
