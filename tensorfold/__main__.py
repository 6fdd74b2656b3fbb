"""`python -m tensorfold` is the `tensorfold` command."""

from tensorfold.cli import start

if __name__ == "__main__":
    start()
