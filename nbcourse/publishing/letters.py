"""The site's letters for mathematics: Greek, arrows and signs, in the style of its text.

    python -m nbcourse.publishing.letters FOLDER book/_static/fonts

The files of the text, `latin-*.woff2`, have Latin letters alone, and whatever else a drawing says
would come from the reader's machine: wider on one, cut off on another. Here the rest is cut from
the whole of Source Serif 4 (`npm pack source-serif`; FOLDER is its `TTF`). Four signs that it has
not are made of others. Its licence, fonts/OFL.txt, keeps its name from what is made of it.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.pens.transformPen import TransformPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

NAME = "Book Symbols"
WEIGHTS = {400: "Regular", 600: "Semibold"}
TAKEN = "".join(map(chr, [*range(0x391, 0x3A2), *range(0x3A3, 0x3AA), *range(0x3B1, 0x3CA)]))
TAKEN += "⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉ᵈˡ←→∂∑√∞≈≠≤≥"
PARTS = "Δ|−_"
Outline = tuple[str, tuple[float, float, float, float, float, float]]  # a letter, and its map


def symbols(source: TTFont) -> TTFont:
    """What a font has of the signs of mathematics, and ∇ ‖ ⁻ ␣, which are made of its outlines.

    Args:
        source: with TrueType outlines; it is cut down to what comes back.
    """
    kept = [0, 7, 13, 14]  # of its names: copyright, trademark, licence
    cutter = subset.Subsetter(subset.Options(layout_features=[], hinting=False, name_IDs=kept))
    cutter.populate(text=TAKEN + PARTS)
    cutter.subset(source)
    names, glyphs = source.getBestCmap(), source.getGlyphSet()
    for letter, (advance, outlines) in _made(source).items():
        pen, name = TTGlyphPen(None), f"uni{ord(letter):04X}"
        for part, matrix in outlines:
            glyphs[names[ord(part)]].draw(TransformPen(pen, matrix))
        source["glyf"][name] = glyph = pen.glyph()
        glyph.recalcBounds(source["glyf"])
        source["hmtx"][name] = round(advance), glyph.xMin
        for table in source["cmap"].tables:
            table.cmap[ord(letter)] = name
    for number, said in ((1, NAME), (2, "Regular"), (4, NAME), (6, NAME.replace(" ", ""))):
        source["name"].setName(said, number, 3, 1, 0x409)
    return source


def _made(source: TTFont) -> dict[str, tuple[float, list[Outline]]]:
    """How wide each letter is that the font has not, and of what it is made."""
    names = source.getBestCmap()
    box = {part: source["glyf"][names[ord(part)]] for part in PARTS}
    width = {part: source["hmtx"][names[ord(part)]][0] for part in PARTS}
    bar, line, top = box["|"], box["_"], box["Δ"].yMax
    thick, short = bar.xMax - bar.xMin, 0.2
    posts = (line.xMin - bar.xMin + thick, line.xMax - bar.xMax - thick)
    return {
        "∇": (width["Δ"], [("Δ", (-1, 0, 0, -1, width["Δ"], top))]),
        "‖": (1.6 * width["|"], [("|", (1, 0, 0, 1, x * width["|"], 0)) for x in (0, 0.6)]),
        "⁻": (0.6 * width["−"], [("−", (0.6, 0, 0, 0.6, 0, 0.5 * top))]),
        "␣": (
            width["_"],
            [("_", (1 - 2 * thick / width["_"], 0, 0, 1, thick, 0))]
            + [("|", (1, 0, 0, short, x, line.yMin - short * bar.yMin)) for x in posts],
        ),
    }


if __name__ == "__main__":
    folder, fonts = map(Path, sys.argv[1:])
    for weight, style in WEIGHTS.items():
        font = symbols(TTFont(folder / f"SourceSerif4-{style}.ttf"))
        font.flavor = "woff"
        font.save(fonts / f"symbols-{weight}-normal.woff")
