"""Objects: a package, so that its folder is not searched for modules: one in it is called like the library requests."""
