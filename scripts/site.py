"""What the site needs besides the pages in docs/: a hook of mkdocs (see mkdocs.yml).

The README is the first page, and the other texts at the root are pages too; the scripts of examples/ are one
page. Links are written as they work in the repository, and are turned here into links between pages. The
build fails if a page would fetch anything from the network.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
AT_THE_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"\]\(((?:\.\./)*)([\w./-]+)(#[\w-]+)?\)")
_FETCHED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    pages = {page: (ROOT / name).read_text() for name, page in AT_THE_ROOT.items() if name != "SECURITY.md"}
    for page, text in {**pages, "examples.md": _examples()}.items():
        files.append(File.generated(config, page, content=re.sub(r"\]\(docs/", "](", text)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Turns links to files of the repository into links to pages of the site."""
    return _LINK.sub(_to_a_page, markdown)


def on_post_page(output: str, *, page: object, **_: object) -> str:
    """Refuses a page that would fetch something from elsewhere."""
    fetched = [one for one in _FETCHED.findall(output) if 'rel="canonical"' not in one]
    if fetched:
        raise PluginError(f"{page} would fetch from the network: {fetched[0]}")
    return output


def _to_a_page(link: re.Match[str]) -> str:
    up, path, anchor = link[1], link[2], link[3] or ""
    if path.split("/")[0] == "examples":
        return f"]({up.removeprefix('../')}examples.md#{Path(path).stem if path.endswith('.py') else 'examples'})"
    if path in AT_THE_ROOT:
        return f"]({up.removeprefix('../')}{AT_THE_ROOT[path]}{anchor})"
    return link[0]


def _examples() -> str:
    """One page of the scripts, each under the first sentence of its docstring."""
    parts = ["# Examples\n\nEach script runs as it stands, in any folder; the tests run all of them."]
    for script in sorted((ROOT / "examples").glob("*.py")):
        sentence, code = re.match(r'"""(.*?)"""\n+(.*)', script.read_text(), re.S).groups()
        parts.append(f"## {script.stem} {{ #{script.stem} }}\n\n{sentence}\n\n```python\n{code}```")
    return "\n\n".join(parts) + "\n"
