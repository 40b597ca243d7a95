"""A trainer of the reader's own: stubs, the book's pieces, and what a build is graded by.

`trainer/` holds the pieces, one source for stubs and solutions, as masters of exercises do;
`warm.safetensors` is the model of chapters 8 to 10, which has to travel with a folder. A folder
needs torch alone. `harness` runs it, in this process or confined in another. The laws, in `credit`,
`learning`, `actor_critic`, `reading`, `planning` and `gating`, ask it for plain data and compare
that with an oracle here. `mistakes` are the pieces with one mistake each, by which both the laws
and the tests that a reader writes are judged. `hunt` deals each student of a class a trainer in one
file, in which `planted` has put faults, and marks what comes back.
"""
