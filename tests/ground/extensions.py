"""Extensions: a module as it is where nothing was compiled."""

import importlib.util
import sys


def without_extension(module, extension):
    """``module`` once more, made where the compiled ``extension`` is not to be had."""
    compiled = sys.modules.pop(extension, None)
    sys.modules[extension] = None
    try:
        spec = importlib.util.spec_from_file_location(f"{module.__name__}_without_extension", module.__file__)
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    finally:
        del sys.modules[extension]
        if compiled is not None:
            sys.modules[extension] = compiled
    return made
