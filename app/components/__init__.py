"""What a page is made of: these draw and return what the person wants; they read and write nothing."""
