"""What the site needs besides the pages in docs/: a hook of mkdocs (see mkdocs.yml).

The README is the first page, and the other texts at the root are pages too; the scripts of examples/ are one
page, and each notebook is one. Links are written as they work in the repository, and are turned here into
links between pages. The build fails if a page would fetch anything from the network.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
AT_THE_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\]\(((?:\.\./)*)([\w./-]+)(#[\w-]+)?\)")
_FETCHED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
_WIDEST = 120  # letters in a line of a table; longer lines are sentences, and are wrapped
_Content = dict[str, str | bytes]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/, and those of the notebooks."""
    pages: _Content = {"examples.md": _examples()}
    for name, page in AT_THE_ROOT.items():
        text = (ROOT / name).read_text().replace("](SECURITY.md)", "](docs/security.md)")
        pages[page] = text.replace("](docs/", "](")
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        pages |= _notebook(notebook)
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Turns links to files of the repository into links to pages of the site."""
    return _LINK.sub(_to_a_page, markdown)


def on_post_page(output: str, *, page: object, **_: object) -> str:
    """Refuses a page that would fetch something from elsewhere."""
    for fetched in _FETCHED.findall(output):
        raise PluginError(f"{page} would fetch from the network: {fetched}")
    return output


def _to_a_page(link: re.Match[str]) -> str:
    up, path, anchor = link[1].removeprefix("../"), link[2], link[3] or ""
    if path in AT_THE_ROOT:
        return f"]({up}{AT_THE_ROOT[path]}{anchor})"
    if path.split("/")[0] == "examples" and path != "examples.md":
        return f"]({up}examples.md{'#' + Path(path).stem if path.endswith('.py') else ''})"
    return link[0].replace(".ipynb", ".md")


def _examples() -> str:
    """One page of the scripts, each under its docstring."""
    parts = ["# Examples", "Each script runs as it stands, in any folder; the tests run all of them."]
    for script in sorted((ROOT / "examples").glob("*.py")):
        sentence, code = re.fullmatch(r'"""(.*?)"""\n+(.*)', script.read_text(), re.S).groups()
        parts.append(f"## {script.name} {{ #{script.stem} }}\n\n{sentence}\n\n```python\n{code}```")
    return "\n\n".join(parts) + "\n"


def _notebook(path: Path) -> _Content:
    """The page of a notebook, and its pictures beside it."""
    pictures: _Content = {}
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        for kind, shown in _outputs(cell):
            if kind == "image/png":
                name = f"{path.stem}_{len(pictures)}.png"
                pictures[f"notebooks/{name}"] = base64.b64decode(shown)
                parts.append(f"![What the cell above draws]({name})")
            else:
                prose = max(map(len, shown.splitlines())) > _WIDEST
                parts.append(f"``` {{ .text{' .prose' * prose} }}\n{shown.rstrip()}\n```")
    return {f"notebooks/{path.stem}.md": "\n\n".join(parts) + "\n", **pictures}


def _outputs(cell: dict[str, list[dict[str, object]]]) -> Iterator[tuple[str, str]]:
    for output in cell.get("outputs", []):
        data = output.get("data", {"text/plain": output.get("text")})
        kind = "image/png" if "image/png" in data else "text/plain"
        yield kind, "".join(data[kind])
