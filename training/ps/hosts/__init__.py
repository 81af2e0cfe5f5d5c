"""Where shards live, and who applies: one contract, two implementations."""

from training.ps.hosts.base import Host, Outcome, Push
from training.ps.hosts.inline import InlineHost
from training.ps.hosts.process import ProcessHost
from training.ps.section import Section


def make_host(section: Section) -> Host:
    """The host that the settings ask for."""
    return ProcessHost(section) if section.control.settings.host == "process" else InlineHost(section)


__all__ = ["Host", "InlineHost", "Outcome", "ProcessHost", "Push", "make_host"]
