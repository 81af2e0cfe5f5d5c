"""The one exception of the data sets."""


class DataError(RuntimeError):
    """A data set's file is missing, damaged, or not what it should be; the message says what to do about it."""
