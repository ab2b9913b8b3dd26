"""How the pages of docs/ become a site (Sphinx, MyST, furo): `make docs`, strict, without the network."""

import gettext
import re
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.locale import __file__ as sphinx_locale
from sphinx.search.en import SearchEnglish
from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

from workbench.commands.cli import app as workbench_app

project = "INT8 workbench"
language = "en"
root_doc = "index"
extensions = ["myst_nb"]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
nitpicky = True  # a link that leads nowhere is a warning, and `make docs` stops at warnings

highlight_language = "none"  # most blocks are commands and their output
myst_heading_anchors = 4  # as on a page of the repository: [text](page.md#heading-in-lower-case)
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "off"  # the tests execute the notebook; the site shows what they saw
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # its default loads scripts from a CDN

html_theme = "furo"
html_title = project
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_search_language = "en-zh"  # `BothLanguages` below
html_theme_options = {"top_of_page_buttons": []}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/languages.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

CHINESE = "zh/"
"""Pages below this folder are in Simplified Chinese, and so is the theme's text around them."""

THEME_WORDS = {
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "Search": "搜索",
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
    "Contents": "目录",
}


class BothLanguages(SearchEnglish):
    """Words of English, stemmed, and pairs of neighbouring Chinese characters, in pages and in what is searched for.

    Pairs need no dictionary. Sphinx's own Chinese search does not work in Sphinx 9.0: its script asks for a stemmer
    that is not there.
    """

    lang = "en-zh"
    js_splitter_code = """
var splitQuery = (query) =>
  (query.match(/[\\u4e00-\\u9fff]+|[A-Za-z0-9_\\u00c0-\\u024f]+/gu) || []).flatMap((term) =>
    /[\\u4e00-\\u9fff]/.test(term) && term.length > 2
      ? Array.from({length: term.length - 1}, (_, i) => term.slice(i, i + 2))
      : [term]);
"""

    def split(self, input: str) -> list[str]:
        words = re.findall(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+", input)
        return [part for word in words for part in (_pairs(word) if "\u4e00" <= word[0] <= "\u9fff" else [word])]

    def word_filter(self, word: str) -> bool:
        return len(word) > 1 and super().word_filter(word)


def _pairs(word: str) -> list[str]:
    return [word[i : i + 2] for i in range(len(word) - 1)] or [word]


class _Words(gettext.NullTranslations):
    """Sphinx's own Chinese catalogue, with the words of the theme that it lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.add_fallback(gettext.translation("sphinx", Path(sphinx_locale).parent, languages=["zh_CN"]))

    def gettext(self, message: str) -> str:
        return THEME_WORDS.get(message.strip()) or super().gettext(message)


def page_language(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """The page's language for browsers, the theme's words in it, its part of the navigation, and the same page in the
    other language (or that language's first page)."""
    pages = app.env.found_docs
    chinese = page.startswith(CHINESE)
    if chinese:
        words = _Words()
        context |= {"language": "zh-CN", "gettext": words.gettext, "ngettext": words.ngettext, "_": words.gettext}
    other = page.removeprefix(CHINESE) if chinese else CHINESE + page
    if other not in pages:
        other = "index" if chinese else f"{CHINESE}index"
    context["language_links"] = [
        ("English", "en", other if chinese else page, not chinese),
        ("中文", "zh-CN", page if chinese else other, chinese),
    ]
    context["furo_navigation_tree"] = _navigation(context.get("furo_navigation_tree", ""), chinese)


def _navigation(tree: str, chinese: bool) -> str:
    """The groups of one language: those of the other have captions in its script."""
    soup = BeautifulSoup(tree, "html.parser")
    for caption in soup.select("p.caption"):
        if bool(re.search("[\u4e00-\u9fff]", caption.get_text())) != chinese:
            group = caption.find_next_sibling("ul")
            if group is not None:
                group.decompose()
            caption.decompose()
    return str(soup)


def write_options(app: Sphinx) -> None:
    """The page of all commands with every option, from the command line itself."""
    command = get_command(workbench_app)
    page = get_docs_for_click(obj=command, ctx=Context(command), name="workbench", title="Every option")
    Path(app.srcdir, "options.md").write_text(page, encoding="utf-8")


def keep_notebooks_in_the_site(app: Sphinx) -> None:
    """The notebook's outputs lie with Sphinx's own files; myst-nb would put them beside the site's folder."""
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=str(Path(app.doctreedir) / "notebooks"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_options)
    app.connect("builder-inited", keep_notebooks_in_the_site, priority=900)  # after myst-nb's own
    app.add_search_language(BothLanguages)
    app.connect("html-page-context", page_language, priority=900)  # after the theme's own, which makes the navigation
    return {"parallel_read_safe": True, "parallel_write_safe": True}
