"""Objects that are what they were set to: equal, hashed and shown by their public attributes."""

from typing import Any


class BySettings:
    """Attributes with a leading underscore are told later and belong to no setting."""

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, BySettings) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash((type(self), *self.settings().items()))

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({told})"
