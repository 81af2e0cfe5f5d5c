"""The error for a wrong argument. The engine knows no config files: it names the argument, and callers say where a
config has it."""

from typing_extensions import override


class ArgumentError(ValueError):
    """What is wrong with an argument of a strategy, or with the model or optimizer that it is to train.

    Functions that look for mistakes return such errors, and others raise them.

    Attributes:
        code: The kind of mistake, short and stable: `contradiction`.
        argument: The name of the argument: `rule`. Behind a dot, an argument of the object that it is: `rule.bound`.
        message: What is wrong; it continues a sentence that begins with the argument.
        fix: What to write instead, in whole sentences.
    """

    def __init__(self, code: str, argument: str, message: str, fix: str) -> None:
        super().__init__(f"{argument}: {message}. {fix}".rstrip())
        self.code, self.argument, self.message, self.fix = code, argument, message, fix

    @override
    def __reduce__(self) -> tuple[type["ArgumentError"], tuple[str, str, str, str]]:
        return type(self), (self.code, self.argument, self.message, self.fix)
