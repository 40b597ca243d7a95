"""A figure's alternative text, taken from the notebook's output onto the page of the site.

A figure states its text in the output's metadata, `{"image/png": {"alt": "…"}}`. myst-nb hands on
the width and height that stand there, and not the text; this plug-in of myst-nb (an entry point in
pyproject.toml) adds it.
"""

from typing import ClassVar

from docutils import nodes
from myst_nb.core.render import MimeData, NbElementRenderer


class AltText:
    """The plug-in."""

    mime_priority_overrides: ClassVar[list] = []

    @staticmethod
    def handle_mime(
        renderer: NbElementRenderer, data: MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        """Render an image whose metadata has a text; leave everything else to myst-nb."""
        alt = data.output_metadata.get(data.mime_type, {}).get("alt")
        if not alt or not data.mime_type.startswith("image/"):
            return None
        images = renderer.render_image(data)
        for image in images:
            image["alt"] = alt
        return images
