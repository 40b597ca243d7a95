"""Exercises in the pages of the site: the checks of the notebook, where Python runs in the browser.

program.py     what a page runs, made from the sheet's own checks when the site is built
site.py        puts it into the pages, with Brython, a Python that is written in JavaScript
arrays/        a small torch in plain Python
stand_ins.py   what the checks use of the standard library, in plain Python
answering.py   runs an answer and says what the check says
worker.js      all of that in a worker, which can be stopped
cells.js, .css what a reader types into and presses
"""
