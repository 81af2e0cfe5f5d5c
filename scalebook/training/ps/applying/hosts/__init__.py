"""Where shards live, and who applies: one contract, two implementations."""

from scalebook.training.ps.applying.hosts.base import ROW_NUMBER, Host, Outcome, Push, Way
from scalebook.training.ps.applying.hosts.inline import InlineHost
from scalebook.training.ps.applying.hosts.process import ProcessHost
from scalebook.training.ps.applying.section import Section


def make_host(section: Section) -> Host:
    """The host that the settings ask for."""
    return ProcessHost(section) if section.control.settings.has_servers else InlineHost(section)


__all__ = ["ROW_NUMBER", "Host", "InlineHost", "Outcome", "ProcessHost", "Push", "Way", "make_host"]
