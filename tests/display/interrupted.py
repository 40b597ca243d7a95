"""A cell that runs an endless command until it is interrupted, as a program."""

import signal

from nbcourse.display import command

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command("train", "endless.toml", "--out", "run")
    except KeyboardInterrupt:
        print("interrupted")
