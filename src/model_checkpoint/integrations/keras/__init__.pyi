"""The front door of this room: every public name and the module that defines it. The one list."""

from .keras_run import KerasRun as KerasRun
