"""Integrations: a package, so that its folder is not searched for modules: those in it are called like the trainers."""
