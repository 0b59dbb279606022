# SPDX-License-Identifier: Apache-2.0
"""What mkdocs calls: the site has nothing that a reader does not need."""
import pathlib
import shutil


def on_post_build(config):
    site = pathlib.Path(config.site_dir)
    for path in [*site.rglob("*.map"), *site.glob("sitemap.xml*"), site / "search" / "search_index.json"]:
        path.unlink(missing_ok=True)   # the offline search reads search_index.js
    shutil.rmtree(site / "assets" / "javascripts" / "lunr", ignore_errors=True)   # stemmers of other languages
