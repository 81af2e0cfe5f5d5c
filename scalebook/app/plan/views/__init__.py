"""Parts of pages that live: they load through resources, draw with components, and do what was asked with services."""
