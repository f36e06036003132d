"""How messages of TorchTPU end: with the anchor of their class in ``docs/errors.md``."""


def with_anchor(text: str, class_name: str) -> str:
    """Append the documentation anchor of an error class to its message."""
    return f"{text.rstrip()} See docs/errors.md#{class_name}."
