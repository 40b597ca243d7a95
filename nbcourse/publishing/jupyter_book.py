"""`python -m nbcourse.publishing.jupyter_book`: Jupyter Book, which collects garbage less often."""

import gc

from jupyter_book.cli.main import main

if __name__ == "__main__":
    # Pages are large trees that stay: to look through them for garbage as often as Python does by
    # default would take a sixth of the time.
    gc.set_threshold(100_000, 50, 100)
    main()
