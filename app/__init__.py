"""The browser half of Scalebook: services, components and the frame around the pages."""
