"""The recorded studies: what made the folders of `book/runs` that no recipe alone makes.

Each is run from the repository's root, `python -m book.studies.NAME`, and needs the package; the
package needs none of them. Chapters import them as `studies`.
"""
