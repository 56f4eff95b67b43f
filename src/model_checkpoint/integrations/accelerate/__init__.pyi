"""What this room offers, and the module that defines it."""

from .accelerated_run import AcceleratedRun as AcceleratedRun
from .prepared_objects import prepared_objects as prepared_objects
