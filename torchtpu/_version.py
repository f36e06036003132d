"""The version of this release; pyproject.toml and ``torchtpu.__version__`` read it here."""

__version__ = "0.1.0"
