"""Pages that other branches bring: each one that is not there yet is made while the site is built.

Remove this file, and its line in mkdocs.yml, when all of them are there.
"""

from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES: Final = (
    *(f"reference/{name}.md" for name in ("index", "config", "cli", "api", "metrics", "files", "refusals", "glossary")),
    "architecture.md",
    "decisions/index.md",
    "lab/index.md",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the missing ones."""
    for path in PAGES:
        if files.get_file_from_path(path) is None:
            title = path.removesuffix(".md").removesuffix("/index").rpartition("/")[2].capitalize()
            files.append(File.generated(config, path, content=f"# {title}\n\nComes with another branch.\n"))
    return files
