"""What tests of several rooms share: thread counts, Ctrl-C, a headless browser, a server."""

import functools
import gc
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

# Before torch is imported, here and in the kernels that tests start: small tensors and several test
# processes are faster with one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from nbcourse.repository import ROOT
from tests import effort, forked_kernels, forked_programs, script
from tests.effort import PATIENCE

# What collecting makes stays to the end: to look through it again and again for garbage would take
# a third of the time.
gc.disable()

# Our own pages on loopback need no sandbox (containers offer none), and no calls home either. Other
# hosts are not found: to hold each request until it is let through would cost a quarter of a page.
BROWSER_OPTIONS = [
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-sandbox",
    "--no-zygote",  # a page whose process is forked from one costs a tenth more
    "--disable-gpu",
    "--in-process-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


forked_kernels.use()

CLEAN = pytest.StashKey[set[str]]()


def changed_files() -> set[str]:
    """What git would commit or calls untracked, a line each; nothing where there is no git."""
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return set(done.stdout.splitlines())


def pytest_configure(config: pytest.Config) -> None:
    """What a session shares, and what it leaves out.

    It makes a warm start once, for all its workers and whatever they start together; what lies in
    the cache of whoever runs the tests is not read. Cases of a sweep that it would drop are not
    even made: that takes time and memory.
    """
    if hasattr(config, "workerinput"):
        script.share(config.workerinput["server"])
    else:
        folder = tempfile.TemporaryDirectory(prefix="nbcourse-warm-starts-")
        config.add_cleanup(folder.cleanup)
        os.environ["NBCOURSE_WARM_STARTS"] = folder.name
    effort.sweeping = "not sweep" not in config.option.markexpr


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Workers too are forked from that server."""
    forked_programs.use()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Workers of pytest-xdist share one server of processes: its imports take 5 seconds."""
    node.workerinput["server"] = script.server()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Under CI, where no person edits files meanwhile, tests and chapters leave none behind."""
    if os.environ.get("CI") == "true" and not hasattr(session.config, "workerinput"):
        session.config.stash[CLEAN] = changed_files()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test or a chapter has changed the repository."""
    script.stop()
    before = session.config.stash.get(CLEAN, None)
    if before is not None and (left := changed_files() - before):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nleft behind by tests or chapters:", *sorted(left), sep="\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the run cost: processor seconds of this process and of all that it has waited for."""
    terminalreporter.write_line(f"processor seconds: {sum(os.times()[:4]):.0f}")


def pytest_collection_finish() -> None:
    """From here on garbage is collected, but of what the tests make alone.

    And what is logged goes up to the root. Where it does not, pytest adds its handlers to the
    logger and takes them off, six times for each test; of torch's loggers 44 are such.
    """
    gc.freeze()
    gc.enable()
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Chapters first, then files with slow tests: so no long file is left over at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.suffix != ".ipynb", item.path not in slow))


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """Each `python -m` that a module starts is forked: sites are built without Sphinx's imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forked_programs.popen())
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also where tests run in the background of a script, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Watched:
    """A browser tab that reaches loopback only, and remembers requests and errors."""

    def __init__(self, browser, **context_options) -> None:
        self.requests: list[str] = []
        self.foreign: list[str] = []
        self.errors: list[str] = []
        self.context = browser.new_context(**context_options)
        self.context.set_default_timeout(1000 * PATIENCE)
        self.context.on("request", self._note)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._listen)

    def _note(self, request) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https", "file"):  # others bring their data themselves
            here = address.hostname in ("127.0.0.1", None)
            (self.requests if here else self.foreign).append(request.url)

    def forget(self) -> None:
        """Leave the page, and keep nothing of it: neither what it stored nor what was noticed."""
        addresses = {urlsplit(url) for url in self.requests}
        tools = self.context.new_cdp_session(self.page)
        for origin in {f"{address.scheme}://{address.netloc}" for address in addresses}:
            tools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        tools.detach()
        self.page.goto("about:blank")
        for noticed in (self.requests, self.foreign, self.errors):
            noticed.clear()

    def _listen(self, message) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url')})")


@pytest.fixture
def open_tab(browser) -> Iterator[Callable[..., Watched]]:
    """open_tab(**options) → a Watched tab, closed after the test."""
    tabs = []

    def open_one(**options) -> Watched:
        tabs.append(Watched(browser, **options))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.context.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # browsers ask by themselves where a page names no icon
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


@pytest.fixture(scope="session")
def serve() -> Callable[[Path], AbstractContextManager[str]]:
    """`with serve(folder) as address:` a web server for a folder on a free port of loopback."""

    @contextmanager
    def serve(folder: Path) -> Iterator[str]:
        handler = functools.partial(_Quiet, directory=str(folder))
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()

    return serve
