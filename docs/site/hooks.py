# SPDX-License-Identifier: Apache-2.0
"""What mkdocs calls: the site has nothing that a reader does not need."""
import pathlib
import shutil

from mkdocs.plugins import event_priority


@event_priority(-200)   # after the plugin offline, which makes search_index.js of the other
def on_post_build(config):
    site = pathlib.Path(config.site_dir)
    for path in [*site.rglob("*.map"), *site.glob("sitemap.xml*"), site / "search" / "search_index.json"]:
        path.unlink(missing_ok=True)
    shutil.rmtree(site / "assets" / "javascripts" / "lunr", ignore_errors=True)   # stemmers of other languages
